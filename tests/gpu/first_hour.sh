#!/bin/sh
# first_hour.sh [FOLDER]: what the first real GPUs are for, in twenty minutes. One is enough: two ranks then share it
# (shared_gpu.py). It leaves a report in FOLDER (first_hour/): the tests of this folder, the full check, what torch and NCCL do (facts.py), what ranks can do that were
# forked (start.py), and one healthy run and five that go wrong with each of torch's NCCL backends. Then it says what
# differs from the fake GPUs, which said facts_of_the_rig.txt. That file is made by this script, too, where there are no
# real ones:
#
#   tests/rigs/fake_gpus/with-fake-gpus env PYTHON=python sh tests/gpu/first_hour.sh FOLDER --rig
#
#   PYTHON  an interpreter that has torch and safelaunch's tools for tests (.venv/bin/python)
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-first_hour}
python=${PYTHON:-$root/.venv/bin/python}
mkdir -p "$out" && cd "$out" || exit 1
facts=$PWD/facts.txt
export PYTHONPATH="$root"
[ "${2:-}" != --rig ] || export FAKE_GPU_STATE="$PWD/state" # without it NVML knows no utilisation
: > "$facts"

ranks=$("$python" -c 'import torch; print(min(torch.cuda.device_count(), 4))')
shared=
case ${ranks:-0} in
    0) echo "first_hour: no GPU here" >&2; exit 1 ;;
    1) ranks=2 shared=$root/tests/gpu/shared_gpu.py ;;
esac
# torch < 2.15 has the older of the two backends for NCCL only.
backends=$("$python" -c 'from torch._C import _distributed_c10d as c; print("nccl2 nccl" if hasattr(c, "ProcessGroupNCCL2") else "nccl")')

step() { # NAME SECONDS COMMAND...: its output goes to NAME.log
    name=$1 limit=$2
    shift 2
    begin=$(date +%s)
    timeout --kill-after 10 "$limit" "$@" > "$name.log" 2>&1
    code=$?
    echo "$name: exit code $code after $(($(date +%s) - begin)) s"
}

verdict='import glob, json, os, sys
found = sorted(glob.glob(sys.argv[1] + "/*/**/verdict.json", recursive=True), key=os.path.getmtime)
one = json.load(open(found[-1])) if found else None
if found:
    print(one["code"], "ranks", one["culprit_ranks"], one["confidence"], "|", one["summary"])
else:
    print("no verdict")'

run() { # BACKEND PROGRAM FAULT: one run of safelaunch, and what it said
    case $1 in nccl) both=0 ;; *) both=1 ;; esac
    name=$1-$2-$3
    step "$name" 120 env TORCH_DIST_USE_NCCL2=$both FAULT="$3" "$python" -m safelaunch --preflight off --run-dir "runs-$name" \
        --hang-abort-after 20s --nproc-per-node "$ranks" $shared "$root/tests/faults/gpu/$2.py"
    told=$("$python" -c "$verdict" "runs-$name")
    echo "    $told"
    echo "$name: exit code $code, ${told%% |*}" >> "$facts"
}

{
    echo "# First hour on real GPUs, $(date -u +%Y-%m-%dT%H:%MZ)"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2> /dev/null
    "$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "NCCL", torch.cuda.nccl.version())'
    for backend in $backends; do
        case $backend in nccl) both=0 ;; *) both=1 ;; esac
        step "facts-$backend" 120 env TORCH_DIST_USE_NCCL2=$both "$python" -m torch.distributed.run --nproc-per-node 2 \
            $shared "$root/tests/gpu/facts.py"
        sed -n "s/^fact: /facts-$backend: /p" "facts-$backend.log" >> "$facts"
        for fault in none late kernel size raise gpu_error; do
            run $backend ddp $fault
        done
    done
    for start in warm cold; do
        case $start in warm) option=--warm-start ;; *) option=--no-warm-start ;; esac
        step "start-$start" 120 "$python" -m safelaunch --preflight off $option --nproc-per-node 2 $shared "$root/tests/gpu/start.py"
        echo "start-$start: exit code $code" >> "$facts"
        sed -n "s/^.*fact: /start-$start: /p" "start-$start.log" >> "$facts"
    done
    if [ "${2:-}" != --rig ]; then
        step check 120 "$python" -m safelaunch check --full -v
        step tests 500 "$python" -m pytest "$root/tests/gpu" -m gpu -q -p no:cacheprovider
        tail -n 3 tests.log
        echo "## What differs from the fake GPUs (< rig, > here)"
        grep -E "^($(echo $backends | sed 's/ /|/g; s/[a-z0-9]*/facts-&:|&-/g')|start-)" "$root/tests/gpu/facts_of_the_rig.txt" | diff - "$facts" && echo nothing
    fi
} 2>&1 | tee report.md
