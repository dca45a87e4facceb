#!/bin/bash
for NODES in 1 2 4; do
  cat > job_${NODES}.sh <<JOB
#!/bin/bash
#SBATCH --nodes=${NODES}
export NCCL_DEBUG=INFO
export NODE_COUNT=${NODES}
export RANK=\$SLURM_PROCID
NCCL_P2P_LEVEL=NVL srun python bench.py
JOB
  sbatch --export=NONE job_${NODES}.sh
done

sbatch <<'JOB'
#!/bin/bash
export NCCL_IB_TIMEOUT=23
python train.py
JOB

cat <<-NCCL | sudo tee /etc/nccl.conf
	NCCL_IB_GID_INDEX=3
	NCCL_IB_TC=106
	NCCL

cat <<USAGE
Usage: NCCL_DEBUG=INFO $0
  export NCCL_SECRET_KNOB=1
USAGE

kubectl apply -f - <<EOF2
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: x
    env:
    - {name: NCCL_NET, value: Socket}
EOF2
python - <<PY
import os
PY
