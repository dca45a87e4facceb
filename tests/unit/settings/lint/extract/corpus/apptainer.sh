export APPTAINERENV_NCCL_DEBUG=INFO
export SINGULARITYENV_PREPEND_PATH=/opt/bin
SIF=train.sif
apptainer exec --nv --env NCCL_IB_DISABLE=1,NCCL_SHM_DISABLE=0 \
    --env NCCL_SOCKET_IFNAME=^docker0,lo \
    `# the mount is slow` \
    --env "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" \
    $SIF bash -c "
    set -e
    export NCCL_NVLS_ENABLE='${NVLS:-0}'
    OMP_NUM_THREADS=4 python train.py
"
