#!/bin/bash
# slurm.conf: HealthCheckProgram=/etc/slurm/healthcheck.sh, HealthCheckInterval=300, HealthCheckNodeState=IDLE,CYCLE.
# It drains the node by itself, which Slurm leaves to this program: its exit code means nothing (slurm.conf(5)).
SAFELAUNCH=${SAFELAUNCH:-/opt/safelaunch/bin/safelaunch}
[ -x "$SAFELAUNCH" ] || exit 0
reason=$("$SAFELAUNCH" check --prolog) && exit 0
scontrol update NodeName="${SLURMD_NODENAME:-$(hostname -s)}" State=DRAIN Reason="safelaunch: $reason"
