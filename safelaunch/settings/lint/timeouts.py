"""Rules about timeouts that do not fit together. The judges at the end serve the lint and what ranks tell of
themselves: a script may pass timeouts of its own, which nobody knows before it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from safelaunch.durations import text
from safelaunch.model import Finding
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.timeouts import GROUP_S, SHUTDOWN_S, InForce, group_timeout, hang_limit


def loader_timeout(context: LintContext) -> Iterator[Finding]:
    """A DataLoader may wait for a batch for as long as a collective may take, or longer.

    When a loader worker is stuck, its rank waits for the batch, and the other ranks wait in the next collective. The
    error that names the loader is worth having only if it comes first: otherwise the collective times out on ranks that
    are well, and these look like the cause.

    How it is concluded: the loader's timeout is not shorter than that of the process group. The loader's is `loader` in
    [timeouts], or what the script passes to its DataLoader (each rank tells it when it begins to iterate). The process
    group's is the script's own, `process_group` in [timeouts], or torch's default, which is 10 minutes for NCCL and 30
    minutes otherwise (torch/distributed/constants.py). Where the script names no backend, torch takes 30 minutes for
    NCCL too.

    What to do: give the loader less time than the process group, and more than the slowest batch takes; the first one
    of an epoch includes the start of the workers.
    """
    own = context.timeouts.get("loader")
    if own is not None and own.value:
        group = group_timeout(context.timeouts, context.backend)
        yield from late_loader(float(own.value), own.origin.where, "`loader` in [timeouts]", group)


def late_hang_limit(context: LintContext) -> Iterator[Finding]:
    """Ranks that hang would be ended by their process group before safelaunch's own limit.

    At the timeout of a collective NCCL's watchdog aborts the ranks, and gloo raises in all that wait. `abort_after`
    of [hang] then never acts: no last evidence is taken of ranks that still live, and the exit code is that of a
    crash. What safelaunch has told of the hang before stays in the run directory.

    How it is concluded: `abort_after` (--hang-abort-after), or the 10 minutes that `--on-hang abort` and `restart`
    take without one, is longer than the timeout of the process group: the script's own (each rank tells it in
    `init_process_group`), `process_group` in [timeouts], or torch's default for the backend. The same length is a
    note: who comes first is then chance. Where the backend is open, the limit is held against the 10 minutes of NCCL,
    and the message says so; where the installed torch knows no GPU, that is only a note.

    What to do: a shorter `abort_after`, or a longer `process_group`. To leave the end of hangs to the process group,
    set no `abort_after`.
    """
    limit = hang_limit(context.hang)
    group = group_timeout(context.timeouts, context.backend)
    own = context.timeouts.get("process_group")
    is_open = not context.backend and (own is None or own.value is None)
    if not is_open or limit.seconds is None or limit.seconds > GROUP_S:
        yield from late_limit(limit, group)
        return
    torch = context.installed.torch
    for found in late_limit(limit, group_timeout(context.timeouts, "nccl"), if_nccl=True):
        yield dataclasses.replace(found, severity="note") if torch is not None and torch.cpu_only else found


def short_kill_wait(context: LintContext) -> Iterator[Finding]:
    """The scheduler kills the job before the ranks have had their time to shut down.

    On SIGTERM the ranks get the shutdown timeout to write a checkpoint and end. A scheduler sends SIGKILL after a wait
    of its own. Where that is shorter, the ranks are killed in the middle of their work, and a checkpoint may be left
    half written.

    How it is concluded: `kill_wait` in [timeouts]; else KillWait of the slurm.conf that this node has (SLURM_CONF,
    /etc/slurm, or what slurmd has fetched), 30 seconds by default; else, in a pod, the 30 seconds of Kubernetes'
    terminationGracePeriodSeconds: a pod cannot see its own, so that is only a note. The 10 seconds of `docker stop`
    cannot be seen at all.

    What to do: a shutdown timeout that is shorter than the wait, or a longer wait. `kill_wait` in [timeouts] says how
    long it really is.
    """
    wait = context.timeouts.get("kill_wait")
    if wait is None:
        return
    shutdown = context.timeouts.get("shutdown")
    seconds = SHUTDOWN_S if shutdown is None else float(shutdown.value)
    if float(wait.value) >= seconds:
        return
    guessed = wait.origin.source == "default"
    reason = "default " + wait.origin.where if guessed else f"so says {wait.origin}"
    yield Finding(
        code="SL222",
        severity="note" if guessed else "warning",
        summary=f"ranks may take {text(seconds)} to shut down, and the scheduler "
        f"{'may kill' if guessed else 'kills'} them {text(float(wait.value))} after SIGTERM ({reason})",
        because=(
            f"the shutdown timeout of {text(seconds)} is " + _said_by(shutdown.origin.where if shutdown else ""),
            *(["what this job really gets cannot be seen from inside"] if guessed else []),
        ),
        remedy="a shorter `shutdown` in [timeouts] (--shutdown-timeout), or a longer wait of the scheduler"
        + ("; `kill_wait` in [timeouts] says how long it is" if guessed else ""),
        where="" if guessed else wait.origin.where,
    )


# ----------------------------------------------------------------------------------------------------- the judges


def late_loader(seconds: float, where: str, whose: str, group: InForce) -> Iterator[Finding]:
    """SL220, if a loader's timeout is not shorter than the group's.

    Args:
        seconds: of the loader.
        where: file and line that say so.
        whose: words for the loader's timeout.
        group: timeout of collectives, in seconds, and who says so.
    """
    if group.seconds is None or seconds < group.seconds:
        return
    yield Finding(
        code="SL220",
        severity="warning",
        summary=f"{whose} is {text(seconds)}, not shorter than the {text(group.seconds)} of a collective: "
        "a stuck loader would look like a fault of its peers",
        because=(
            f"collectives time out after {text(group.seconds)}: {group.why}",
            "the ranks that wait for the stuck one reach that first",
        ),
        remedy=f"a loader timeout below {text(group.seconds)}, or a longer `process_group` in [timeouts]",
        where=where,
    )


def late_limit(limit: InForce, group: InForce, *, if_nccl: bool = False) -> Iterator[Finding]:
    """SL221, if the hang limit is not shorter than the group's timeout; the same length is a note.

    Args:
        limit: after how long without progress safelaunch ends the ranks.
        group: timeout of collectives; both in seconds, and who says so.
        if_nccl: whether the timeout holds only if the ranks use NCCL.
    """
    if limit.seconds is None or group.seconds is None or limit.seconds < group.seconds:
        return
    same = limit.seconds == group.seconds
    own = f"the process group's own {text(group.seconds)}{' with NCCL' if if_nccl else ''}"
    how = f"as late as {own}" if same else f"later than {own}: it never acts{' there' if if_nccl else ''}"
    yield Finding(
        code="SL221",
        severity="note" if same else "warning",
        summary=f"the limit for hangs is {text(limit.seconds)}, {how}",
        because=(
            f"collectives time out after {text(group.seconds)}: {group.why}",
            f"the limit: {limit.why}",
            "at its timeout the group ends the ranks, and with them what could still have been seen",
        ),
        remedy=f"`abort_after` in [hang] (--hang-abort-after) below {text(group.seconds)}, "
        "or a longer `process_group` in [timeouts]",
    )


def _said_by(where: str) -> str:
    return f"set at {where}" if where else "the default"
