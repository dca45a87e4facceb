#!/bin/bash
HOSTS="node1 node2"
launch() {
  local host=$1 rank=$2
  local -x NCCL_LAUNCH_MODE=GROUP
  ssh -o StrictHostKeyChecking=no $host "cd /work && \
    NCCL_SOCKET_IFNAME=ens5 NODE_RANK=$rank nohup torchrun train.py > log 2>&1 &"
}
i=0
for h in $HOSTS; do launch $h $((i++)) & done
wait
pdsh -w node[1-4] -R ssh 'export NCCL_ALGO=Ring; nvidia-smi'
tmux new-session -d -e NCCL_DEBUG=VERSION 'python a.py'
JOB=$(sbatch --parsable --export=ALL,STAGE=2 next.sbatch)
case "$1" in
  ib|rdma) export NCCL_IB_DISABLE=0 ;;
  tcp) NCCL_IB_DISABLE=1; export NCCL_IB_DISABLE ;;
esac
export URL="http://x/?NCCL_A=1&NCCL_B=2"
git config user.name=bot
dd if=/dev/zero of=x bs=1
awk -v NCCL_X=1 '{print $1 " export NCCL_Y=1"}' f
test "$NCCL_Z" = 1 || IFS=, read -r a b <<< "$HOSTS"
export -n HOSTS
export -f launch
