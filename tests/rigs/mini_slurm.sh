#!/usr/bin/env bash
# A real Slurm on one machine: its controller and N slurmd, each in a network namespace of netns_hosts.sh with a host
# name of its own, so that links can be cut under a job. No systemd, cgroups or database.
#
#   mini_slurm.sh start N      makes the hosts and starts munged, slurmctld and N slurmd; waits until all nodes are idle
#   mini_slurm.sh run CMD...   runs sbatch, srun, scancel ... where they can reach the controller
#   mini_slurm.sh kill-node I  SIGKILLs slurmd of node I with all steps and processes of jobs there
#   mini_slurm.sh start-node I starts slurmd of node I again
#   mini_slurm.sh stop         ends everything and removes it, hosts included; can be called again
# env: MINI_SLURM_DIR (its state), SLH_PREFIX and SLH_NET of netns_hosts.sh, MINI_SLURM_CPUS a node (4).
# Needs root and Debian's slurmctld, slurmd, slurm-client, munge (22.05).
set -euo pipefail
D=${MINI_SLURM_DIR:?}; CPUS=${MINI_SLURM_CPUS:-4}; P=${SLH_PREFIX:?}; NET=${SLH_NET:?}
HOSTS=$(cd "$(dirname "$0")" && pwd)/netns_hosts.sh
export SLURM_CONF=$D/slurm.conf
on_switch() { ip netns exec "$P-sw" "$@"; }
on_node() { # its own mount namespace sees its own /etc/hosts
  local i=$1; shift
  ip netns exec "$P$i" unshare --uts -- /bin/sh -c 'hostname "$0"; exec "$@"' "$P$i" "$@"
}
conf() {
  local i mem; mem=$(awk '/MemTotal/{print int($2 / 1024 * 0.9)}' /proc/meminfo)
  cat <<C
ClusterName=mini
SlurmctldHost=$(hostname -s)($NET.254)
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket=$D/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool.%n
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd.%n.pid
SlurmctldLogFile=$D/slurmctld.log
SlurmdLogFile=$D/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=30
InactiveLimit=0
KillWait=10
JobRequeue=1
LaunchParameters=enable_nss_slurm=no
SwitchType=switch/none
C
  for ((i = 1; i <= $1; i++)); do
    echo "NodeName=$P$i NodeHostname=$P$i NodeAddr=$NET.$i Port=16818 CPUs=$CPUS RealMemory=$mem State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=$P[1-$1] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4"
}
start_node() { on_node "$1" env "MINI_SLURM_NODE=$D:$1" slurmd -f "$SLURM_CONF" -N "$P$1"; }
pids_of() { # slurmd, slurmstepd (both have the mark of start_node) and every process of a job, orphans included
  { grep -lzx "MINI_SLURM_NODE=$D:$1" /proc/[0-9]*/environ
    grep -lzx "SLURMD_NODENAME=$P$1" /proc/[0-9]*/environ | xargs -r grep -lzx "SLURM_CONF=$SLURM_CONF"; } 2>/dev/null | cut -d/ -f3 || true
}
kill_node() { local p; for p in $(pids_of "$1"); do kill -9 "$p" 2>/dev/null || true; done; }
end_daemon() {
  local p; [ -s "$1" ] || return 0
  p=$(cat "$1"); kill "$p" 2>/dev/null || return 0
  for _ in $(seq 30); do kill -0 "$p" 2>/dev/null || return 0; sleep .1; done
  kill -9 "$p" 2>/dev/null || true
}
stop() {
  local f; [ -d "$D" ] || return 0
  end_daemon "$D/slurmctld.pid"
  for f in "$D"/spool.*; do kill_node "${f##*spool."$P"}"; done
  end_daemon "$D/munge/munged.pid"
  bash "$HOSTS" down
  rm -rf "$D"
}
start() {
  local n=$1 i; stop
  mkdir -p "$D/munge" "$D/state"; chmod 755 "$D" "$D/munge"
  bash "$HOSTS" up "$n" >/dev/null
  ip -n "$P-sw" addr add "$NET.254/24" dev br0
  dd if=/dev/urandom of="$D/munge/key" bs=1 count=128 status=none; chmod 400 "$D/munge/key"; chown -R root "$D/munge"
  munged --force --key-file "$D/munge/key" --socket "$D/munge/socket" --pid-file "$D/munge/munged.pid" \
    --log-file "$D/munge/munged.log" --seed-file "$D/munge/seed" --num-threads 2
  conf "$n" >"$SLURM_CONF"
  echo "CgroupPlugin=cgroup/v1" >"$D/cgroup.conf" # named, so that slurmd does not probe; nothing uses it
  for ((i = 1; i <= n; i++)); do mkdir -p "$D/spool.$P$i"; done
  on_switch slurmctld -f "$SLURM_CONF" -c
  for ((i = 1; i <= n; i++)); do start_node "$i"; done
  for _ in $(seq 300); do
    [ "$(on_switch sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = "$n" ] && return 0; sleep .1
  done
  echo "mini_slurm: nodes not idle after 30 s" >&2; tail -n 5 "$D"/*.log >&2; return 1
}
case ${1:-} in
  start) start "${2:?N}" ;;
  run) shift; on_switch "$@" ;;
  kill-node) kill_node "${2:?I}"; rm -f "$D/slurmd.$P$2.pid" ;;
  start-node) start_node "${2:?I}" ;;
  stop) stop ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
