#!/bin/sh
# The same by gantry (pip install beaker-gantry), which makes the experiment from a git commit. gantry's own --torchrun
# would start torchrun; without it the command is what stands behind `--`.
exec gantry run --name train --workspace ai2/OURS --budget ai2/OURS --cluster ai2/OURS \
    --replicas 2 --leader-selection --host-networking --propagate-failure --propagate-preemption \
    --synchronized-start-timeout 15m --gpus 8 --shared-memory 64GiB \
    --install 'pip install . safelaunch' \
    -- safelaunch train.py
