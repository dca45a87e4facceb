"""Pieces of logs, written in the manner of real ones."""

from __future__ import annotations

from collections.abc import Iterable

SITE = "/opt/conda/lib/python3.10/site-packages"


def traceback(error: str, *frames: tuple[str, int, str], library: bool = False) -> str:
    """A traceback that ends in `error`; frames are (file, line, function)."""
    lines = ["Traceback (most recent call last):"]
    for file, line, function in frames:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {function}()"]
    if library:
        lines += [
            f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 2806, in all_reduce',
            "    work.wait()",
        ]
    return "\n".join([*lines, error]) + "\n"


MAIN = ("/srv/train.py", 88, "<module>")
STEP = ("/srv/train.py", 41, "step")
CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:36152"
LOST_NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote "
    "process exited or there was a network error, NCCL version 2.21.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    "Last error:\nsocketProgressOpt: Call to recv from 10.0.0.7<33759> failed : Connection reset by peer"
)


def marked(text: str, mark: str) -> str:
    """The text with a mark before each line."""
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


def rank(number: int, text: str) -> str:
    """Lines as torch from 2.2 on marks them."""
    return marked(text, f"[rank{number}]: ")


def mixed(*texts: str) -> str:
    """The lines of several processes in turn."""
    queues = [text.splitlines() for text in texts]
    lines = []
    while any(queues):
        lines += [queue.pop(0) for queue in queues if queue]
    return "\n".join(lines) + "\n"


def watchdog(
    number: int,
    seq: int = 1842,
    op: str = "ALLREDUCE",
    numel: int = 1048576,
    *,
    ran: int = 600012,
    mark: bool = True,
    line: int = 632,
    member: int | None = None,
    at: str = "E515 18:36:47.341808597",
) -> str:
    """The line of a watchdog that gave up (torch 2.3 and later)."""
    prefix = f"[rank{number}]:" if mark else ""
    who = number if member is None else member
    return (
        f"{prefix}[{at} ProcessGroupNCCL.cpp:{line}] [Rank {who}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for {ran} "
        "milliseconds before timing out.\n"
    )


def status(number: int, work: int, enqueued: int, completed: int, group: str = "0", name: str = "default_pg") -> str:
    """How far a rank had come (torch 2.6 and later)."""
    called = f"({name})" if name else ""
    return (
        f"[rank{number}]:[E515 18:36:47.343391940 ProcessGroupNCCL.cpp:2268] [PG ID {group} PG GUID {group}{called} "
        f"Rank {number}]  failure detected by watchdog at work sequence id: {work} PG status: last enqueued work: "
        f"{enqueued}, last completed work: {completed}\n"
    )


def dump_signal(number: int, source: str, enqueued: int, completed: int) -> str:
    """A rank that answers for a timeout, its own or another's."""
    return (
        f"[rank{number}]:[E515 18:36:48.402391940 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank "
        f"{number}] Received a dump signal due to a collective timeout from {source} and we will try our best to dump "
        f"the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most "
        "likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks.\n"
    )


RECORDER_OFF = (
    "[rank0]:[E515 18:36:47.343399 ProcessGroupNCCL.cpp:670] Stack trace of the failed collective not found, "
    "potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a "
    "non-zero value.\n"
)
WORLD = "node-a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks {} cudaDev 0 busId 18000 - Init COMPLETE\n"


def child_failed(
    first: tuple[int, int], others: Iterable[tuple[int, int]] = (), *, host: str = "node-a", base: int = 4000,
    said: str = "", local: int = 8, time: str = "2025-05-15_18:36:52",
) -> str:  # fmt: skip
    """torchrun's last words; failures are (rank, exit code)."""

    def entry(index: int, number: int, code: int) -> str:
        words = said if not index and said else (
            f"Signal {-code} (SIG) received by PID {base + number}" if code < 0
            else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        )  # fmt: skip
        return (
            f"[{index}]:\n  time      : {time}\n  host      : {host}\n"
            f"  rank      : {number} (local_rank: {number % local})\n  exitcode  : {code} (pid: {base + number})\n"
            f"  error_file: <N/A>\n  traceback : {words}\n"
        )

    rest = "".join(entry(i, *failure) for i, failure in enumerate(others, 1)) or "  <NO_OTHER_FAILURES>\n"
    return (
        f"E0515 18:36:52.816000 3900 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed "
        f"(exitcode: {first[1]}) local_rank: {first[0] % local} (pid: {base + first[0]}) of binary: /usr/bin/python3\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/conda/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        f'  File "{SITE}/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper\n'
        "    return f(*args, **kwargs)\n"
        f'  File "{SITE}/torch/distributed/run.py", line 892, in main\n    run(args)\n'
        f'  File "{SITE}/torch/distributed/launcher/api.py", line 270, in launch_agent\n    raise ChildFailedError(\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\ntrain.py FAILED\n"
        "------------------------------------------------------------\nFailures:\n"
        f"{rest}------------------------------------------------------------\nRoot Cause (first observed failure):\n"
        f"{entry(0, *first)}============================================================\n"
    )


def closing(*pids: int) -> str:
    """What torchrun says when it ends the others."""
    return "".join(
        "W0515 18:36:51.700000 3900 site-packages/torch/distributed/elastic/multiprocessing/api.py:900] Sending "
        f"process {pid} closing signal SIGTERM\n"
        for pid in pids
    )
