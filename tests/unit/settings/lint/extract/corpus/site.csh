#!/bin/tcsh
#SBATCH --nodes 2
if ( $?SLURM_CPUS_PER_TASK ) then
   setenv OMP_NUM_THREADS $SLURM_CPUS_PER_TASK
else
   setenv OMP_NUM_THREADS 1
endif
set port = 29400
setenv RDZV_HOST `hostname -s`
setenv ENDPOINT ${RDZV_HOST}:${port}
setenv MASTER_PORT $port
setenv NCCL_BLOCKING_WAIT 1
#setenv NCCL_DEBUG INFO
setenv NCCL_SOCKET_IFNAME "^docker0,lo"
unsetenv CUDA_VISIBLE_DEVICES
srun torchrun --nnodes=2 train.py
