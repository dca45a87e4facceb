#!/usr/bin/env bash
# Runs a command as containers do: as PID 1, in namespaces of its own, on a root that takes writes without showing them to
# the machine, with a small /dev, and with files that a cluster mounts.
#
#   container.sh STATE HOSTNAME COMMAND...
#
# STATE is a folder, on a file system that an overlay can lie on; what the command writes to / appears in STATE/upper, and
# STATE/results and STATE/termination-log are /results (Beaker) and /dev/termination-log (Kubernetes) where they exist.
# Environment and working directory stay. Needs root.
set -euo pipefail
STATE=$1 NAME=$2; shift 2
mkdir -p "$STATE/mount"
export STATE NAME HERE=$PWD
exec unshare --pid --fork --kill-child --mount --uts --ipc --propagation private -- bash -euc '
  # An overlay may not lie on another one, which the machine itself may be on.
  mount -t tmpfs tmpfs "$STATE/mount"
  mkdir "$STATE/mount/upper" "$STATE/mount/work" "$STATE/mount/root"
  R=$STATE/mount/root
  mount -t overlay overlay -o "lowerdir=/,upperdir=$STATE/mount/upper,workdir=$STATE/mount/work" "$R"
  mount -t proc proc "$R/proc"
  mount -t tmpfs -o mode=755 tmpfs "$R/dev"
  mkdir "$R/dev/shm" "$R/dev/pts"
  mount -t tmpfs tmpfs "$R/dev/shm"
  for device in null zero full random urandom tty; do touch "$R/dev/$device"; mount --bind "/dev/$device" "$R/dev/$device"; done
  ln -s /proc/self/fd "$R/dev/fd"
  for mounted in $(awk "\$2 ~ /^\/[^\/]+\$/ && \$2 !~ /^\/(proc|dev)\$/ {print \$2}" /proc/self/mounts | sort -u) /tmp; do
    mountpoint -q "$R$mounted" || mount --rbind "$mounted" "$R$mounted"
  done
  if [ -d "$STATE/results" ]; then mkdir -p "$R/results"; mount --bind "$STATE/results" "$R/results"; fi
  if [ -f "$STATE/termination-log" ]; then
    touch "$R/dev/termination-log"; mount --bind "$STATE/termination-log" "$R/dev/termination-log"
  fi
  echo "127.0.0.1 $NAME" >>"$R/etc/hosts" # as runtimes do
  hostname "$NAME"
  exec chroot "$R" env --chdir="$HERE" -u STATE -u NAME -u HERE "$@"
' bash "$@"
