#!/bin/sh
DOCKER=${DOCKER:-"sudo docker"}
ENVS="-e NCCL_IB_HCA=mlx5_0,mlx5_1 \
      -e NCCL_IB_GID_INDEX=3"
ENVS="$ENVS -e GLOO_SOCKET_IFNAME=eth0"

$DOCKER run --rm --gpus all --ipc=host $ENVS \
  --env-file common.env -e WANDB_API_KEY -v /data:/data \
  -e NCCL_SOCKET_IFNAME="^lo,docker" --env=OMP_NUM_THREADS=8 -eTORCH_SHOW_CPP_STACKTRACES=1 \
  -e NCCL_NET=<plugin> \
  nvcr.io/nvidia/pytorch:24.05-py3 bash -lc "pip install -q a==1 && \
    export NCCL_P2P_DISABLE=1; torchrun --nproc_per_node 8 train.py --env X=1"

docker exec -e CUDA_VISIBLE_DEVICES=0,1 box env -u FOO LD_PRELOAD=/x.so python a.py FOO=1
docker build --build-arg NCCL_VERSION=2.20 .
docker run -d --entrypoint /bin/bash -e VLLM_HOST_IP=10.0.0.1 img -c "NCCL_CUMEM_ENABLE=0 ray start --head"
