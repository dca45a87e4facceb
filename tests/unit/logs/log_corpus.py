# ruff: noqa: E501 - lines of logs are as long as they are
"""Small logs in the manner of real ones, and what is to be said of each.

An entry is (files, expected): files by name, expected by field of the verdict. `says` are texts that stand somewhere in
summary, reasons or remedy; a culprit or a line that is not expected is an error.
"""

from __future__ import annotations

from typing import Any

from log_pieces import (
    CLOSED,
    LOST_NCCL,
    MAIN,
    RECORDER_OFF,
    SITE,
    STEP,
    WORLD,
    child_failed,
    closing,
    dump_signal,
    marked,
    mixed,
    rank,
    status,
    traceback,
    watchdog,
)  # fmt: skip

Entry = tuple[dict[str, str], dict[str, Any]]

VALUE = "ValueError: bad sample 7"
LOST = traceback(CLOSED, MAIN, STEP, library=True)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.21 GiB is free. {}Including non-PyTorch memory, this process has 70.00 GiB memory in use. Of the allocated "
    "memory 68.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)
STEPS = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(40))

CORPUS: dict[str, Entry] = {
    # ---------------------------------------------------------------------------------------- launchers that quote
    "DeepSpeed quotes the command that it started last, whoever failed": (
        {"run.log": "[2024-05-01 10:00:00,123] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 11\n"
                    "[2024-05-01 10:00:01,123] [ERROR] [launch.py:321:sigkill_handler] ['/v/bin/python', '-u', 't.py', "
                    "'--local_rank=7', '--deepspeed'] exits with return code = -11\n"},
        {"code": "SL405", "culprit_ranks": (), "says": ("does not say which rank",)},
    ),
    "a launcher that raises CalledProcessError of a signal": (
        {"run.log": traceback("subprocess.CalledProcessError: Command '['/v/bin/python', '-u', 't.py', '--local_rank=7']' "
                              "died with <Signals.SIGSEGV: 11>.", (f"{SITE}/deepspeed/launcher/launch.py", 137, "sigkill_handler"))},
        {"code": "SL405", "culprit_ranks": (), "says": ("does not say which rank",)},
    ),
    "what a child says, handed on line by line": (
        {"test.log": "".join(f"stderr: {line}\n" for line in child_failed((1, 1)).splitlines())},
        {"code": "SL499", "culprit_ranks": (), "says": ("rank 1 ended with an error",)},
    ),
    "a bus error of a loader worker, of which the message holds no hint": (
        {"run-42.log": traceback("RuntimeError: DataLoader worker (pid 1232) is killed by signal: Bus error.", MAIN)},
        {"code": "SL421", "culprit_ranks": ()},
    ),
    # ---------------------------------------------------------------------------------------- exceptions
    "exception, victims first, ranks mixed": (
        {
            "train.log": STEPS
            + mixed(rank(0, LOST), rank(1, LOST), rank(3, traceback(VALUE, MAIN, ("/srv/data.py", 12, "load"))), rank(2, LOST))
            + closing(4002) + child_failed((0, 1), [(1, 1), (2, -15), (3, 1)]),
        },
        {
            "code": "SL401", "culprit_ranks": (3,), "location": ("/srv/data.py", 12), "confidence": "high",
            "secondary": (0, 1, 2), "says": ("train.log:", "ValueError: bad sample 7"),
        },
    ),
    "exception without marks, one rank failed by itself": (
        {"out.log": STEPS + traceback(VALUE, MAIN, STEP) + closing(4000, 4001) + child_failed((2, 1))},
        {"code": "SL401", "culprit_ranks": (2,), "location": ("/srv/train.py", 41), "confidence": "medium"},
    ),
    "exception without marks, and nothing that says which rank": (
        {"out.log": STEPS + traceback(VALUE, MAIN, STEP)},
        {"code": "SL401", "culprit_ranks": (), "location": ("/srv/train.py", 41), "says": ("does not say which",)},
    ),
    "the same exception everywhere, in step": (
        {
            "out.log": mixed(*[traceback("FileNotFoundError: no such file: /data/a", MAIN, STEP)] * 4)
            + child_failed((0, 1), [(1, 1), (2, 1), (3, 1)])
        },
        {"code": "SL402", "culprit_ranks": (), "location": ("/srv/train.py", 41)},
    ),
    "the same exception everywhere, marked": (
        {"out.log": "".join(rank(i, traceback("KeyError: 'lr'", MAIN)) for i in range(4)) + WORLD.format(4)},
        {"code": "SL402", "culprit_ranks": (), "location": ("/srv/train.py", 88)},
    ),
    "two ranks of four alike": (
        {"out.log": "".join(rank(i, traceback(VALUE, MAIN, STEP)) for i in (1, 2)) + rank(0, LOST) + rank(3, LOST)},
        {"code": "SL401", "culprit_ranks": (1, 2), "secondary": (0, 3)},
    ),
    "an import error on one rank": (
        {
            "out.log": rank(2, traceback("ModuleNotFoundError: No module named 'flash_attn'", MAIN))
            + closing(4000, 4001, 4003) + child_failed((2, 1), [(0, -15), (1, -15), (3, -15)])
        },
        {"code": "SL409", "culprit_ranks": (2,), "says": ("flash_attn",)},
    ),
    "a syntax error on one node's ranks": (
        {
            "out.log": marked('  File "/srv/train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n', "[rank1]: ")
            + closing(4000) + child_failed((1, 1), [(0, -15)])
        },
        {"code": "SL409", "culprit_ranks": (1,)},
    ),
    "torchrun --tee: marks of local ranks on one node": (
        {
            "out.log": mixed(
                marked(LOST, "[default0]:"), marked(traceback(VALUE, MAIN, STEP), "[default3]:"), marked(LOST, "[default1]:")
            )
            + child_failed((0, 1), [(1, 1), (3, 1)])
        },
        {"code": "SL401", "culprit_ranks": (3,), "location": ("/srv/train.py", 41)},
    ),
    "marks of local ranks of two nodes in one file": (
        {
            "out.log": marked(marked(traceback(VALUE, MAIN, STEP), "[default3]:"), "1: ") + marked(marked(LOST, "[default0]:"), "0: ")
            + marked(marked(LOST, "[default3]:"), "0: ")
        },
        {"code": "SL401", "culprit_ranks": (), "host": "task 1", "says": ("does not say which",)},
    ),
    "srun --label, a task a rank": (
        {
            "slurm-77.out": mixed(marked(STEPS + LOST, "0: "), marked(STEPS + LOST, "1: "), marked(STEPS + traceback(VALUE, MAIN), "2: "))
            + "srun: error: node5: task 2: Exited with exit code 1\nsrun: error: node4: tasks 0-1: Exited with exit code 1\n"
        },
        {"code": "SL401", "culprit_ranks": (2,), "secondary": (0, 1)},
    ),
    "a file a rank, torchrun's log folder": (
        {
            "logs/abc/attempt_0/0/stderr.log": LOST,
            "logs/abc/attempt_0/1/stderr.log": traceback(VALUE, MAIN, ("/srv/data.py", 12, "load")),
            "logs/abc/attempt_0/1/stdout.log": STEPS,
            "logs/abc/attempt_0/2/stderr.log": LOST,
        },
        {"code": "SL401", "culprit_ranks": (1,), "secondary": (0, 2), "says": ("attempt_0/1/stderr.log:",)},
    ),
    "a file a rank, only the last attempt counts": (
        {
            "attempt_0/rank_000/stderr.log": traceback("RuntimeError: first attempt", MAIN),
            "attempt_1/rank_000/stderr.log": LOST,
            "attempt_1/rank_001/stderr.log": traceback("ValueError: second", MAIN, STEP),
        },
        {"code": "SL401", "culprit_ranks": (1,), "says": ("ValueError: second",)},
    ),
    "pods by kubectl --prefix with times": (
        {
            "pods.log": mixed(
                marked(rank(4, LOST), "[pod/job-worker-0/pytorch] 2025-05-15T18:36:52.1Z "),
                marked(rank(9, traceback(VALUE, MAIN, STEP)), "[pod/job-worker-1/pytorch] 2025-05-15T18:36:51.0Z "),
            )
        },
        {"code": "SL401", "culprit_ranks": (9,), "host": "job-worker-1", "secondary": (4,)},
    ),
    "stern, colours, carriage returns of a progress bar": (
        {
            "stern.log": "".join(f"job-worker-2 pytorch step {i}\n" for i in range(9))
            + "job-worker-2 pytorch \x1b[32mEpoch 0:  12%|#  | 12/100\r\x1b[0m[rank2]:[E515 18:36:47.3 ProcessGroupNCCL.cpp:1]"
            " noise\n" + marked(rank(5, traceback(VALUE, MAIN, STEP)), "\x1b[36mjob-worker-2\x1b[0m pytorch ")
        },
        {"code": "SL401", "culprit_ranks": (5,), "host": "job-worker-2"},
    ),
    "two different exceptions, times tell the first": (
        {
            "rank0.log": marked(traceback("OSError: stale file handle", MAIN, STEP), "2025-05-15 10:00:09,100 "),
            "rank1.log": marked(traceback(VALUE, MAIN, ("/srv/data.py", 12, "load")), "2025-05-15 10:00:01,100 "),
        },
        {"code": "SL401", "culprit_ranks": (1,), "says": ("later",)},
    ),
    "two different exceptions, nothing tells the first": (
        {
            "rank0.log": traceback("OSError: stale file handle", MAIN, STEP),
            "rank1.log": traceback(VALUE, MAIN, ("/srv/data.py", 12, "load")),
        },
        {"code": "SL499", "culprit_ranks": (), "confidence": "low", "says": ("rank 0", "rank 1")},
    ),
    "an exception that is handed on by a lost peer": (
        {
            "out.log": rank(1, traceback(VALUE, MAIN, STEP) + "\nDuring handling of the above exception, another exception occurred:\n\n" + LOST)
            + rank(0, LOST)
        },
        {"code": "SL401", "culprit_ranks": (1,), "says": ("bad sample 7",)},
    ),
    "a traceback in a thread, and a root elsewhere": (
        {
            "out.log": rank(0, "Exception in thread Thread-3 (log):\n" + traceback("OSError: log server", ("/srv/log.py", 5, "run")))
            + STEPS + rank(2, traceback(VALUE, MAIN, STEP)) + rank(0, LOST)
        },
        {"code": "SL401", "culprit_ranks": (2,)},
    ),
    "an exception that was survived": (
        {"rank_000.log": traceback("OSError: retry 1", MAIN, STEP) + STEPS + "step 41 loss 1.5\n"},
        {"code": "SL498", "culprit_ranks": (), "says": ("survived",)},
    ),
    "torch.multiprocessing.spawn": (
        {
            "out.log": "Traceback (most recent call last):\n"
            '  File "/srv/train.py", line 99, in <module>\n    mp.spawn(main, nprocs=2)\n'
            f'  File "{SITE}/torch/multiprocessing/spawn.py", line 202, in start_processes\n    while not context.join():\n'
            "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
            + traceback(VALUE, (f"{SITE}/torch/multiprocessing/spawn.py", 90, "_wrap"), STEP)
        },
        {"code": "SL401", "culprit_ranks": (1,), "location": ("/srv/train.py", 41)},
    ),
    "a loader worker's exception": (
        {
            "out.log": rank(
                3,
                traceback("ValueError: Caught ValueError in DataLoader worker process 2.", MAIN, STEP)
                + "Original " + traceback(VALUE, ("/srv/data.py", 12, "__getitem__")),
            )
        },
        {"code": "SL401", "culprit_ranks": (3,), "location": ("/srv/data.py", 12)},
    ),
    "torch elastic's record with a traceback of its own": (
        {"out.log": closing(4000) + child_failed((1, 1), [(0, -15)], said=traceback(VALUE, MAIN, STEP).rstrip())},
        {"code": "SL401", "culprit_ranks": (1,), "location": ("/srv/train.py", 41)},
    ),
    # ---------------------------------------------------------------------------------------- records only
    "only torchrun's record: noticed first is not at fault": (
        {"out.log": STEPS + closing(4001, 4002, 4003) + child_failed((0, 1))},
        {"code": "SL499", "culprit_ranks": (), "confidence": "low", "says": ("noticed",)},
    ),
    "killed, told by torchrun": (
        {"out.log": STEPS + closing(4000, 4002) + child_failed((1, -9))},
        {"code": "SL403", "culprit_ranks": (1,), "pid": 4001, "confidence": "medium"},
    ),
    "killed by torchrun after it had not ended": (
        {
            "out.log": rank(1, traceback(VALUE, MAIN, STEP)) + closing(4000)
            + "W0515 18:37:21.7 3900 torch/distributed/elastic/multiprocessing/api.py:900] Unable to shutdown process 4000 via "
            "Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n" + child_failed((1, 1), [(0, -9)])
        },
        {"code": "SL401", "culprit_ranks": (1,), "confidence": "medium"},
    ),
    "out of memory by the kernel's log": (
        {
            "out.log": STEPS + closing(4000) + child_failed((1, -9)),
            "dmesg.txt": "[Thu May 15 18:36:50 2025] Memory cgroup out of memory: Killed process 4001 (python3) "
            "total-vm:123456kB, anon-rss:65536kB\n",
        },
        {"code": "SL404", "culprit_ranks": (1,), "says": ("dmesg.txt:1",)},
    ),
    "out of memory by Slurm, and a task may be a node": (
        {
            "slurm-9.out": STEPS + "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have "
            "been OOM Killed.\nsrun: error: node7: task 3: Out Of Memory\n"
        },
        {"code": "SL404", "culprit_ranks": (), "host": "node7", "says": ("node7: task 3",)},
    ),
    "out of memory by Slurm, where tasks share a host and are ranks": (
        {
            "slurm-9.out": STEPS + "srun: error: node7: task 3: Out Of Memory\nsrun: error: node7: task 2: Terminated\n"
        },
        {"code": "SL404", "culprit_ranks": (3,), "host": "node7"},
    ),
    "out of memory by Slurm, where there are more ranks than tasks": (
        {
            "slurm-9.out": "".join(f"[rank{n}]: step 1 loss 2.0\n" for n in range(16))
            + "srun: error: node2: task 1: Out Of Memory\n"
        },
        {"code": "SL404", "culprit_ranks": (), "host": "node2"},
    ),
    "a segmentation fault with faulthandler": (
        {
            "out.log": rank(2, 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n'
            f'  File "{SITE}/decord/video.py", line 57 in __init__\n  File "/srv/data.py", line 12 in load\n'
            '  File "/srv/train.py", line 88 in <module>\n\nExtension modules: numpy (total: 1)\n')
            + closing(4000) + child_failed((2, -11), [(0, -15)])
        },
        {"code": "SL405", "culprit_ranks": (2,), "location": ("/srv/data.py", 12)},
    ),
    "srun says which task crashed": (
        {"slurm-9.out": STEPS + "srun: error: node5: task 3: Segmentation fault (core dumped)\n" + marked(LOST, "")},
        {"code": "SL405", "culprit_ranks": (), "says": ("task 3 on node5",)},
    ),
    # ---------------------------------------------------------------------------------------- resources
    "CUDA OOM on one rank": (
        {"out.log": rank(1, traceback(OOM.format(""), MAIN, STEP)) + rank(0, LOST) + rank(2, LOST)},
        {"code": "SL420", "culprit_ranks": (1,), "location": ("/srv/train.py", 41)},
    ),
    "CUDA OOM, other processes on the GPU": (
        {
            "out.log": rank(
                0, traceback(OOM.format("Process 4101 has 3.00 GiB memory in use. Process 4102 has 3.00 GiB memory in use. "), MAIN)
            )
        },
        {"code": "SL420", "culprit_ranks": (0,), "says": ("2 other processes",)},
    ),
    "Bus error in a loader worker": (
        {
            "out.log": rank(
                1,
                "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
                + traceback(
                    "RuntimeError: DataLoader worker (pid 2991) is killed by signal: Bus error. It is possible that dataloader's "
                    "workers are out of shared memory. Please try to raise your shared memory limit.", MAIN, STEP,
                ),
            )
        },
        {"code": "SL421", "culprit_ranks": (1,), "says": ("--shm-size",)},
    ),
    "a loader worker killed": (
        {"out.log": rank(1, traceback("RuntimeError: DataLoader worker (pid 2991) is killed by signal: Killed. ", MAIN, STEP))},
        {"code": "SL429", "culprit_ranks": (1,)},
    ),
    "too many open files": (
        {"out.log": rank(0, traceback("RuntimeError: received 0 items of ancdata", MAIN)) + rank(1, LOST)},
        {"code": "SL422", "culprit_ranks": (0,), "says": ("ulimit",)},
    ),
    "no space left": (
        {"out.log": rank(0, traceback("OSError: [Errno 28] No space left on device", MAIN, ("/srv/ckpt.py", 5, "save")))},
        {"code": "SL423", "culprit_ranks": (0,)},
    ),
    "invalid device ordinal": (
        {
            "out.log": rank(
                7,
                traceback(
                    "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at "
                    "some other API call, so the stacktrace below might be incorrect.", MAIN,
                ),
            )
        },
        {"code": "SL425", "culprit_ranks": (7,), "says": ("nproc-per-node",)},
    ),
    "two mashed exceptions": (
        {
            "out.log": "RuntimeErrorRuntimeError: CUDA error: invalid device ordinal\nCompile with `TORCH_USE_CUDA_DSA` to "
            "enable device-side assertions.\n: CUDA error: invalid device ordinal\n"
        },
        {"code": "SL425", "culprit_ranks": (), "confidence": "low"},
    ),
    "device-side assert": (
        {
            "out.log": "../aten/src/ATen/native/cuda/Indexing.cu:1231: indexSelectSmallIndex: block: [31,0,0], thread: [1,0,0] "
            "Assertion `srcIndex < srcSelectDimSize` failed.\n" * 3
            + rank(2, traceback("RuntimeError: CUDA error: device-side assert triggered", MAIN, STEP)) + rank(0, LOST)
        },
        {"code": "SL427", "culprit_ranks": (2,)},
    ),
    "address in use": (
        {
            "out.log": rank(
                0,
                traceback(
                    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
                    "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
                    ("/srv/train.py", 20, "setup"),
                ),
            )
        },
        {"code": "SL424", "culprit_ranks": (0,), "says": ("29500",)},
    ),
    "torchrun's own port in use": (
        {
            "out.log": "Traceback (most recent call last):\n"
            f'  File "/opt/conda/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
            f'  File "{SITE}/torch/distributed/run.py", line 892, in main\n    run(args)\n'
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
        },
        {"code": "SL424", "culprit_ranks": (), "says": ("29500", "launcher")},
    ),
    # ---------------------------------------------------------------------------------------- NCCL
    "duplicate GPU": (
        {
            "out.log": "".join(
                rank(
                    i,
                    traceback(
                        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, "
                        "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5\nncclInvalidUsage: This usually "
                        f"reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank {i} and rank {1 - i} both "
                        "on CUDA device f000", MAIN, library=True,
                    ),
                )
                for i in (0, 1)
            )
        },
        {"code": "SL426", "culprit_ranks": (), "says": ("ranks 0 and 1 use the same GPU", "set_device")},
    ),
    "system error with its NCCL WARN": (
        {
            "out.log": "node7:6561:6600 [1] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n"
            + rank(
                1,
                traceback(
                    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, "
                    "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.6\nncclSystemError: System "
                    "call (e.g. socket, malloc) or external library call failed or device error.", MAIN, library=True,
                ),
            )
            + rank(0, traceback(LOST_NCCL, MAIN, library=True))
        },
        {"code": "SL426", "culprit_ranks": (1,), "says": ("ibv_create_cq",), "secondary": (0,)},
    ),
    "NCCL lost a peer everywhere here": (
        {"out.log": rank(0, traceback(LOST_NCCL, MAIN, library=True)) + rank(1, traceback(LOST_NCCL, MAIN, library=True)) + WORLD.format(4)},
        {"code": "SL412", "culprit_ranks": (), "secondary": (0, 1), "says": ("no log of ranks 2 and 3",)},
    ),
    "a GPU fell off the bus": (
        {
            "out.log": STEPS + closing(4000) + child_failed((1, -6)),
            "journal.log": "May 15 18:36:49 node-a kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4001, name=python3, GPU has "
            "fallen off the bus.\n",
        },
        {"code": "SL428", "culprit_ranks": (1,), "kind": "infra", "says": ("journal.log:1",)},
    ),
    "an error message that speaks of the past": (
        {
            "out.log": 2 * traceback("ValueError: the batch was empty", ("train.py", 7, "main"))
            + child_failed((0, 1), [(1, 1), (2, 1)])
        },
        {"code": "SL401", "culprit_ranks": (), "says": ("raised ValueError: the batch was empty",)},
    ),
    "two ranks of a job of which nobody knows the size": (
        {"out.log": rank(0, traceback("ValueError: no", ("t.py", 7, "f"))) + rank(1, traceback("ValueError: no", ("t.py", 7, "f")))},
        {"code": "SL402", "says": ("ranks 0 and 1, all that the log shows, raised ValueError",)},
    ),
    # ---------------------------------------------------------------------------------------- hangs
    "the last rank came to the store too late": (
        {
            "out.log": "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank"
            ": 0, for key: store_based_barrier_key:1 (world_size=4, worker_count=4, timeout=0:30:00)\n"
        },
        {"code": "SL309", "culprit_ranks": (), "confidence": "low", "says": ("all 4 ranks came", "too late")},
    ),
    "one rank never entered, by its own words": (
        {
            "out.log": WORLD.format(4)
            + "".join(watchdog(i) + status(i, 1842, 1842, 1841) for i in (0, 1, 2))
            + dump_signal(3, " rank 0", 1841, 1841) + RECORDER_OFF + child_failed((0, -6), [(1, -6), (2, -6), (3, -15)])
        },
        {
            "code": "SL301", "culprit_ranks": (3,), "seq": 1842, "operation": "allreduce", "waiting": (0, 1, 2),
            "confidence": "medium", "says": ("TORCH_FR_BUFFER_SIZE",),
        },
    ),
    "one rank said nothing": (
        {"out.log": WORLD.format(4) + "".join(watchdog(i) for i in (0, 1, 2))},
        {"code": "SL399", "culprit_ranks": (), "says": ("no line of rank 3 is in the logs",), "confidence": "low"},
    ),
    "the first to time out is not named": (
        {"out.log": STEPS + watchdog(0) + status(0, 1842, 1842, 1841) + child_failed((0, -6))},
        {"code": "SL399", "culprit_ranks": ()},
    ),
    "all ranks in the same collective": (
        {"out.log": WORLD.format(2) + watchdog(0, 1) + watchdog(1, 1) + status(0, 1, 1, -1) + status(1, 1, 1, -1)},
        {"code": "SL310", "culprit_ranks": (), "seq": 1},
    ),
    "all ranks in the same collective, then what follows from it": (
        {
            "out.log": WORLD.format(2) + watchdog(0, 1, "ALLGATHER", 1) + watchdog(1, 1, "ALLGATHER", 1)
            + "".join(
                rank(i, traceback(f"RuntimeError: DDP expects same model across all ranks, but Rank {i} has 51 params, while rank "
                                  f"{1 - i} has inconsistent 0 params.", MAIN))
                for i in (0, 1)
            )
        },
        {"code": "SL310", "culprit_ranks": ()},
    ),
    "one rank in another collective": (
        {
            "out.log": WORLD.format(4) + "".join(watchdog(i, 80078, "ALLREDUCE", 2106881) for i in (0, 1, 2))
            + watchdog(3, 80078, "BROADCAST", 5056)
        },
        {"code": "SL302", "culprit_ranks": (3,), "says": ("BROADCAST", "ALLREDUCE")},
    ),
    "one against one": (
        {"out.log": WORLD.format(2) + watchdog(0, 5, "ALLREDUCE", 8) + watchdog(1, 5, "BROADCAST", 8)},
        {"code": "SL302", "culprit_ranks": (), "confidence": "low"},
    ),
    "sizes differ": (
        {"out.log": WORLD.format(3) + watchdog(0, 5, numel=8) + watchdog(1, 5, numel=4) + watchdog(2, 5, numel=8)},
        {"code": "SL410", "culprit_ranks": (1,)},
    ),
    "uneven all_to_all is no mismatch": (
        {"out.log": WORLD.format(3) + "".join(watchdog(i, 5, "ALLTOALL_BASE", 8 + i) for i in range(3))},
        {"code": "SL310", "culprit_ranks": ()},
    ),
    "torch 1.13, no marks": (
        {
            "out.log": WORLD.format(2)
            + "".join(
                f"[E ProcessGroupNCCL.cpp:737] [Rank {i}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, "
                "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.\n"
                for i in (1, 0)
            )
            + "[E ProcessGroupNCCL.cpp:414] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
            "kernels, subsequent GPU operations might run on corrupted/incomplete data. To avoid this inconsistency, we are "
            "taking the entire process down.\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  "
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, "
            "Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.\n"
        },
        {"code": "SL310", "culprit_ranks": (), "seq": 469508},
    ),
    "a timeout, because a rank had raised before": (
        {
            "out.log": WORLD.format(3) + rank(2, traceback(VALUE, MAIN, STEP)) + STEPS + watchdog(0) + watchdog(1)
        },
        {"code": "SL401", "culprit_ranks": (2,), "secondary": (0, 1)},
    ),
    "the desync report": (
        {
            "out.log": WORLD.format(8) + watchdog(0, 241, numel=6)
            + "[rank0]:[E515 18:36:47.343377708 ProcessGroupNCCL.cpp:1937] Rank 0\n"
            "\t - [0] Timeout at collective: ALLREDUCE, #315\n\t - To our best knowledge, the lagging/dead/mismatched ranks that "
            "caused the desync are:\n\t     [7] finished collective #182, but didn't join collective #183 (count from 1)\n"
            "\t - Snapshot of ranks' latest states:\n\t   #182 finished ranks:\n\t     [7] finished ALLREDUCE\n"
            "\t   #315 started ranks:\n\t     [0, 1, 2] started ALLREDUCE\n"
        },
        {"code": "SL301", "culprit_ranks": (7,), "confidence": "medium"},
    ),
    "ranks wait in two groups": (
        {
            "out.log": watchdog(0, 7) + status(0, 7, 7, 6, "1", "") + watchdog(1, 7) + status(1, 7, 7, 6, "1", "")
            + watchdog(2, 9, member=0) + watchdog(3, 9, member=1)
        },
        {"code": "SL399", "culprit_ranks": ()},
    ),
    "monitored_barrier, all that are missing": (
        {
            "out.log": rank(0, traceback("RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms", MAIN, library=True))
            + rank(2, traceback("RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for "
                                "send/recv from rank 0. Please check rank 0 logs for faulty rank.", MAIN, library=True))
        },
        {"code": "SL301", "culprit_ranks": (4, 5, 6, 7)},
    ),
    "monitored_barrier, a victim's words alone": (
        {
            "out.log": rank(2, traceback("RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while "
                                         "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.", MAIN, library=True))
        },
        {"code": "SL412", "culprit_ranks": (), "secondary": (2,)},
    ),
    "gloo waited in vain": (
        {
            "out.log": "".join(
                rank(i, traceback("RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
                                  "1800000ms for recv operation to complete", MAIN, STEP, library=True))
                for i in (0, 1)
            )
            + WORLD.format(3)
        },
        {"code": "SL412", "culprit_ranks": (), "secondary": (0, 1), "says": ("rank 2",)},
    ),
    "gloo received another size": (
        {
            "out.log": "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at "
            "../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4\n" + rank(1, LOST)
            + closing(4001) + child_failed((0, -6), [(1, 1)])
        },
        {"code": "SL410", "culprit_ranks": (), "says": ("8 vs 4",)},
    ),
    "different collectives by the wrapper": (
        {
            "out.log": WORLD.format(2) + rank(
                0, traceback("RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
                "CollectiveFingerPrint(SequenceNumber=21, OpType=ALLREDUCE, TensorShape=[20, 10], TensorDtypes=Float, "
                "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu)), but Rank 1 is running collective: "
                "CollectiveFingerPrint(SequenceNumber=21, OpType=BROADCAST, TensorShape=[1], TensorDtypes=Long).Collectives differ "
                "in the following aspects: \t Op type: ALLREDUCEvs BROADCAST", MAIN, STEP, library=True))
        },
        {"code": "SL411", "culprit_ranks": (), "location": ("/srv/train.py", 41), "says": ("ALLREDUCE", "BROADCAST")},
    ),
    "a rank never came to init_process_group": (
        {
            "out.log": "".join(
                rank(i, traceback("torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on "
                                  f"rank: {i}, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)", MAIN))
                for i in (0, 1, 3)
            )
        },
        {"code": "SL309", "culprit_ranks": (2,), "confidence": "medium"},
    ),
    "more came to the store than there should be": (
        {
            "out.log": "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
            "store_based_barrier_key:1 (world_size=4, worker_count=16, timeout=0:30:00)\n"
        },
        {"code": "SL309", "culprit_ranks": (), "says": ("16 ranks came",)},
    ),
    "the heartbeat monitor": (
        {
            "out.log": "[rank144]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 144] Heartbeat monitor timed out! Process will be "
            "terminated after dumping debug info. workMetaList_.size()=1\n"
        },
        {"code": "SL399", "culprit_ranks": (), "says": ("rank 144",)},
    ),
    # ---------------------------------------------------------------------------------------- outside
    "Slurm's time limit": (
        {
            "slurm-9.out": STEPS + "slurmstepd: error: *** JOB 494583 ON node1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***\n"
            + rank(0, traceback("torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15", MAIN))
        },
        {"code": "SL603", "culprit_ranks": (), "kind": "infra", "host": "node1", "says": ("TIME LIMIT",)},
    ),
    "preempted": (
        {"slurm-9.out": STEPS + "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2021-03-15T18:00:46 DUE TO PREEMPTION ***\n"},
        {"code": "SL603", "culprit_ranks": (), "says": ("PREEMPTION",)},
    ),
    "the step is cancelled because a task had failed": (
        {
            "slurm-9.out": mixed(marked(STEPS + traceback(VALUE, MAIN), "1: "), marked(STEPS + STEPS, "0: "))
            + "srun: error: node5: task 1: Exited with exit code 1\n"
            "srun: launch/slurm: _step_signal: Terminating StepId=9.0\nslurmstepd: error: *** STEP 9.0 ON node5 CANCELLED AT "
            "2022-05-17T17:58:10 ***\nsrun: error: node4: task 0: Terminated\n"
        },
        {"code": "SL401", "culprit_ranks": (1,)},
    ),
    "OOMKilled": (
        {
            "describe.txt": "Name:         job-worker-2\nStatus:       Failed\n    Last State:     Terminated\n      Reason:       "
            "OOMKilled\n      Exit Code:    137\n"
        },
        {"code": "SL404", "culprit_ranks": (), "says": ("Kubernetes",)},
    ),
    "evicted": (
        {"events.txt": "4m11s  Warning  Evicted  pod/job-worker-1  The node was low on resource: memory. Container was using 5Ki\n"},
        {"code": "SL603", "culprit_ranks": ()},
    ),
    "rendezvous": (
        {
            "out.log": "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29400).\n"
            + traceback(
                "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See "
                "inner exception for details.", ("/opt/conda/bin/torchrun", 8, "<module>"), (f"{SITE}/torch/distributed/run.py", 9, "main"),
            )
        },
        {"code": "SL602", "culprit_ranks": (), "kind": "infra"},
    ),
    "interrupted by hand": (
        {"out.log": STEPS + rank(0, traceback("KeyboardInterrupt", MAIN, STEP)) + rank(1, traceback("KeyboardInterrupt", MAIN, STEP))},
        {"code": "SL603", "culprit_ranks": (), "says": ("interrupted",)},
    ),
    "an ECC error of one rank, and a timeout ten minutes later": (
        {
            "out.log": "[rank1]:[E810 15:36:05.945597139 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 1] Process "
            "group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors "
            "might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n\nterminate "
            "called after throwing an instance of 'c10::DistBackendError'\nFatal Python error: Aborted\n"
            + watchdog(0, 51753, at="E810 15:46:05.718597139")
            + closing(4000) + child_failed((1, -6), [(0, -15)], time="2026-08-10_15:46:36")
        },
        {"code": "SL428", "culprit_ranks": (1,), "secondary": (0,), "confidence": "low"},
    ),
    "a rank that torchrun had to kill, after two that failed": (
        {"out.log": child_failed((1, 1), [(3, 1)]).replace("Root Cause", "[2]:\n  time      : 2025-05-15_18:37:23\n  host      : node-a\n  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 4000)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 4000\nRoot Cause")},
        {"code": "SL499", "culprit_ranks": ()},
    ),
    "dump signals without the line that says why": (
        {"out.log": dump_signal(1, "this local rank", 233659, 233659) + dump_signal(0, " rank 1", 233659, 233659)},
        {"code": "SL399", "culprit_ranks": ()},
    ),
    "srun kills the rest of a step": (
        {"slurm-9.out": "srun: error: node5: task 1: Exited with exit code 1\nsrun: error: node4: task 0: Killed\n"},
        {"code": "SL499", "culprit_ranks": ()},
    ),
    "killed, and Slurm counts an OOM kill": (
        {
            "slurm-9.out": STEPS + closing(4000) + child_failed((1, -9))
            + "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed.\n"
        },
        {"code": "SL404", "culprit_ranks": (1,)},
    ),
    # ------------------------------------------------------------------------ caught, ended well, earlier attempts
    "a caught exception of a rank that torchrun does not list": (
        {
            "out.log": rank(1, traceback("TimeoutError: s3", MAIN)) + STEPS[:200] + rank(3, traceback(VALUE, MAIN, STEP))
            + rank(0, LOST) + child_failed((3, 1), [(0, 1)])
        },
        {"code": "SL401", "culprit_ranks": (3,)},
    ),
    "a caught exception, and a good end": (
        {"out.log": rank(1, traceback("TimeoutError: s3", MAIN)) + "step 9\nTraining finished. Saved model\n"},
        {"code": "SL498", "culprit_ranks": (), "exit_code": 0, "says": ("survived",)},
    ),
    "an exception after a good end": (
        {"out.log": "Training finished\n" + rank(1, traceback(VALUE, MAIN))},
        {"code": "SL401", "culprit_ranks": (1,)},
    ),
    "a restart that ended well": (
        {
            "out.log": rank(1, traceback(VALUE, MAIN)) + "W1121 10:41:12 39 torch/distributed/elastic/agent/server/api.py:735] "
            "[default] Worker group FAILED. 3/3 attempts left; will restart worker group\nstep 1\n"
            "I1121 10:59:12 39 torch/distributed/elastic/agent/server/api.py:879] [default] worker group successfully finished.\n"
        },
        {"code": "SL498", "culprit_ranks": (), "says": ("an earlier attempt failed",)},
    ),
    "a restart, then the time limit": (
        {
            "out.log": rank(1, traceback(VALUE, MAIN)) + "W1121 10:41:12 39 torch/distributed/elastic/agent/server/api.py:735] "
            "[default] Worker group FAILED. 3/3 attempts left; will restart worker group\nstep 1\n"
            "slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-21T10:41:30 DUE TO TIME LIMIT ***\n"
        },
        {"code": "SL603", "culprit_ranks": (), "says": ("an earlier attempt",)},
    ),
    "two jobs in one file": (
        {
            "out.log": rank(1, traceback(VALUE, MAIN)) + child_failed((1, 1), time="2025-05-14_18:36:52")
            + rank(0, traceback("KeyError: 'tuesday'", MAIN, STEP)) + child_failed((0, 1))
        },
        {"code": "SL401", "culprit_ranks": (0,), "says": ("an earlier attempt, or job", "tuesday")},
    ),
    "one task exits, the others are terminated": (
        {"s.log": "srun: error: n2: task 11: Exited with exit code 3\nsrun: error: n1: tasks 0-7: Terminated\n"},
        {"code": "SL407", "culprit_ranks": (11,), "confidence": "low"},
    ),
    "a local rank of a node that nobody names": (
        {"out.log": marked(traceback(VALUE, MAIN), "[default3]:")},
        {"code": "SL401", "culprit_ranks": (), "says": ("local rank 3 raised", "does not say which rank")},
    ),
    "a local rank that torchrun names": (
        {"out.log": marked(traceback(VALUE, MAIN), "[default3]:") + child_failed((11, 1))},
        {"code": "SL401", "culprit_ranks": (11,)},
    ),
    "the rendezvous was not complete": (
        {
            "out.log": traceback(
                "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined.",
                (f"{SITE}/torch/distributed/elastic/rendezvous/api.py", 3, "f"),
            )
        },
        {"code": "SL602", "culprit_ranks": ()},
    ),
    "a rank waited in vain for others at the store": (
        {
            "out.log": rank(1, traceback(
                "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.", MAIN
            ))
        },
        {"code": "SL309", "culprit_ranks": (), "says": ("1 of 4 ranks never came", "rank 1 says so")},
    ),
    "an exception in torchrun's own record": (
        {
            "out.log": child_failed(
                (2, 1),
                said="Traceback (most recent call last):\n      File \"/srv/train.py\", line 41, in step\n"
                "        step()\n    ValueError: bad sample 7",
            )
        },
        {"code": "SL401", "culprit_ranks": (2,), "location": ("/srv/train.py", 41), "says": (VALUE,)},
    ),
    "a lost connection while another exception was handled": (
        {
            "out.log": rank(2, traceback(VALUE, MAIN, STEP) + "\nDuring handling of the above exception, another exception occurred:\n\n"
            + LOST) + rank(0, LOST) + child_failed((0, 1), [(2, 1)])
        },
        {"code": "SL401", "culprit_ranks": (2,), "confidence": "medium", "location": None, "says": (f"raised {VALUE}",)},
    ),
    "a loader worker that the kernel ended": (
        {
            "out.log": rank(4, traceback("RuntimeError: DataLoader worker (pid(s) 5512) exited unexpectedly", MAIN))
            + "Out of memory: Killed process 5512 (python) total-vm:9kB\n" + rank(0, LOST) + child_failed((4, 1), [(0, 1)])
        },
        {"code": "SL429", "culprit_ranks": (4,), "says": ("Killed process 5512",)},
    ),
    "a fatal error without a mark, of the one that crashed": (
        {
            "out.log": "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f2 (most recent call first):\n"
            '  File "/srv/ops.py", line 12 in fused\n' + closing(4000) + child_failed((3, -11))
        },
        {"code": "SL405", "culprit_ranks": (3,), "location": ("/srv/ops.py", 12)},
    ),
    "one of four waited at another number": (
        {"out.log": watchdog(0) + watchdog(1) + watchdog(2) + watchdog(3, 1841, "BROADCAST")},
        {"code": "SL302", "culprit_ranks": (3,), "confidence": "low"},
    ),
    "one of four said nothing": (
        {"out.log": watchdog(0) + watchdog(1) + watchdog(3)},
        {"code": "SL399", "culprit_ranks": (), "says": ("no line of rank 2 is in the logs", "look at the output of rank 2")},
    ),
    # ---------------------------------------------------------------------------------------- nothing
    "a healthy run that says frightening things": (
        {
            "out.log": "ConnectionResetError: [Errno 104] Connection reset by peer, trying again\n" + STEPS
            + "node-a:1:1 [0] NCCL INFO [Service thread] Connection closed by localRank 1\nRuntimeError: CUDA out of memory, trying "
            "with batch size 4\n" + STEPS + "rank0: done\n"
        },
        {"code": "SL498", "culprit_ranks": ()},
    ),
    "a healthy run": (
        {"out.log": STEPS + "node-a:1:1 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Destroy COMPLETE\nerror rate 0.01\ndone\n"},
        {"code": "SL498", "culprit_ranks": (), "exit_code": 0, "kind": "none"},
    ),
    "C++ code threw what nothing caught": (
        {"out.log": STEPS + "[default0]:step 3\n[default3]:terminate called after throwing an instance of 'std::runtime_error'\n"
                    "[default3]:  what():  the tokenizer is odd\n"},
        {"code": "SL406", "culprit_ranks": (), "says": ("local rank 3 aborted", "the tokenizer is odd")},
    ),
    "an empty file": ({"out.log": ""}, {"code": "SL499", "culprit_ranks": (), "says": ("the log is empty",)}),
    "a traceback that is cut off": (
        {"out.log": rank(3, "Traceback (most recent call last):\n  File \"/srv/train.py\", line 88, in <module>")},
        {"code": "SL499", "culprit_ranks": (), "says": ("cut off",)},
    ),
}  # fmt: skip
