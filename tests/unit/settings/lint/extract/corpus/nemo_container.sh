#!/usr/bin/env bash
# shellcheck disable=SC2086
IMAGE=${1:?image}
COMMON="NCCL_DEBUG=INFO"

export NVTE_FUSED_ATTN=1 NVTE_FLASH_ATTN=0
export TORCH_NCCL_AVOID_RECORD_STREAMS=1 \
       NCCL_NVLS_ENABLE=0

read -r -d '' CMD <<'SCRIPT'
echo "*******STARTING********"
export TOKENIZERS_PARALLELISM=False
SCRIPT

RUN="cd /workspace && \
export HYDRA_FULL_ERROR=1 && \
$COMMON python -u train.py trainer.devices=8"

srun --container-image="$IMAGE" --container-env=NCCL_DEBUG --no-container-mount-home \
     --export=ALL,NCCL_MIN_NCHANNELS=16,PYTHONUNBUFFERED=1 \
     bash -c "${RUN}"
