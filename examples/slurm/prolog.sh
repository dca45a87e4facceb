#!/bin/bash
# slurm.conf: Prolog=/etc/slurm/prolog.sh, as root before each job, with 8 s by itself (MessageTimeout is 10 s by default).
# A Prolog that fails has the node drained and the job requeued. `check --prolog` prints a line and ends with 69 where
# the hardware of the node is bad, and ends with 0 for all else, its own faults included.
SAFELAUNCH=${SAFELAUNCH:-/opt/safelaunch/bin/safelaunch}
[ -x "$SAFELAUNCH" ] || exit 0       # no node is drained because a file system is not mounted
reason=$("$SAFELAUNCH" check --prolog) && exit 0
echo "print safelaunch: $reason"
exit 1
