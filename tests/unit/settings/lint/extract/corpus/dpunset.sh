export NCCL_DEBUG=INFO
unset NCCL_DEBUG
export NCCL_ALGO=Ring
python warm_up.py
unset NCCL_ALGO
export NCCL_PROTO=Simple
( export NCCL_PROTO=LL; python other.py )
OUTER=1
( OUTER=2; export OUTER )
OUTER=3
eval "export NCCL_NTHREADS=256"
eval $LATER
trap 'export NCCL_NO=1' EXIT
alias t='NCCL_NO=1 torchrun'
