#!/bin/bash
# NDv4: topology file and relaxed ordering

set -o allexport
NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml
NCCL_IB_PCI_RELAXED_ORDERING=1
UCX_IB_PCI_RELAXED_ORDERING=on
set +o allexport
LOCAL_ONLY=1

MPI_ARGS=(
  --bind-to numa            # it's needed
  -x "UCX_NET_DEVICES=eth0"
  -x NCCL_SOCKET_IFNAME=eth0
)
MPI_ARGS+=(-x CUDA_DEVICE_ORDER=PCI_BUS_ID)
[[ $DEBUG == 1 && -n "$VERBOSE" ]] && MPI_ARGS+=(-x NCCL_DEBUG=INFO)

mpirun "${MPI_ARGS[@]}" -np 16 python train.py --env SEED=1
