"""Runs in: every Python process of a rank, before the script. Each step may fail alone; none may raise."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import Any, Callable, List

import safelaunch
from safelaunch import black_box
from safelaunch.worker import errors, rank

PR_SET_PDEATHSIG = 1  # prctl(2)
_PREPARED = []  # type: ignore[var-annotated]  # the box of a fork server, which has no slot yet
PR_SET_PTRACER = 0x59616D61  # prctl(2), yama: who may attach without being our ancestor


def arm() -> None:
    """Arm everything that the environment of this worker asks for."""
    held = _hold_closed()
    try:
        _arm()
    finally:
        for descriptor in held:
            os.close(descriptor)


def _hold_closed() -> List[int]:
    """Take the numbers of standard streams that are closed: none of our files may come to stand there. Returns them."""
    held: List[int] = []
    while True:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        if descriptor > 2:
            os.close(descriptor)
            return held
        held.append(descriptor)


def _arm() -> None:
    environ = os.environ
    rank_dir = environ["SAFELAUNCH_RANK_DIR"]
    agent = int(environ.get("SAFELAUNCH_AGENT", "0"))
    is_rank = os.getppid() == agent
    if is_rank:
        environ["SAFELAUNCH_ARMED"] = "1"
    elif _may_be_rank() and agent and not os.path.exists("/proc/%d" % agent):
        os.kill(os.getpid(), signal.SIGKILL)  # it died before we came this far, and the run with it
    _step(_bind_life, agent, is_rank)
    _step(_arm_faulthandler, rank_dir)
    box = _step(_open_black_box, rank_dir) if is_rank else None  # a box without a slot must not be used
    if is_rank:
        _step(_arm_stack_signal, rank_dir)
        if "SAFELAUNCH_IGNORE_SIGCHLD" in environ:  # the launcher was started so, and needs it itself
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    _step(errors.install, rank_dir, box)
    if not rank.is_expected():
        _hook(box, is_rank)  # type: ignore[no-untyped-call]
    elif box is not None:
        _step(rank.born)


def _may_be_rank() -> bool:
    """Whether this may be a rank that has lost its parent before it came here. What a rank has started lives on after
    the run, where it is detached, and may start others then."""
    return "SAFELAUNCH_ARMED" not in os.environ and os.getsid(0) == os.getpid()


def prepare() -> None:
    """Arrange for the hooks in the fork server: before torch is imported, as a cold start does, so that every module of
    torch sees the same functions."""
    rank.expect()
    if "SAFELAUNCH_BLACK_BOX" in os.environ:
        _PREPARED.append(black_box.Writer())
    _hook(_PREPARED[0] if _PREPARED else None, True)  # type: ignore[no-untyped-call]


def hook(box: Any) -> None:
    """Arrange for the hooks in a process that may become a rank (`joining`); it has no slot yet."""
    _hook(box, True)  # type: ignore[no-untyped-call]


def arm_member(rank_dir: str, box: Any, watcher: int) -> None:
    """Arm a rank that somebody else has started, and that lives and ends as it would without us.

    Args:
        rank_dir: its folder.
        box: its black box, with a slot.
        watcher: the pid of the process that watches, 0 where it is not known.
    """
    held = _hold_closed()
    try:
        if watcher:
            _step(_let_be_read, watcher)
        _step(_arm_faulthandler, rank_dir)
        _step(_arm_stack_signal, rank_dir)
        _step(errors.install, rank_dir, box)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _let_be_read(by: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(by), 0, 0, 0)


def _hook(box, is_rank):  # type: ignore[no-untyped-def]
    from safelaunch.worker import torch_hooks

    if is_rank:
        bind = os.environ.get("SAFELAUNCH_BIND_DEVICE") == "1"
        _step(_watch_devices, box, bind)  # below the record of collectives
    timeouts = os.environ.get("SAFELAUNCH_PG_TIMEOUT"), os.environ.get("SAFELAUNCH_LOADER_TIMEOUT")
    _step(torch_hooks.install, box, *timeouts)


def _step(function: Callable, *args):  # type: ignore[no-untyped-def,type-arg]
    try:
        return function(*args)
    except Exception as error:
        if os.environ.get("SAFELAUNCH_DEBUG"):
            sys.stderr.write("safelaunch: %s is off in this worker: %r\n" % (function.__name__, error))
        return None


def _bind_life(agent: int, is_rank: bool) -> None:
    """Die with the agent, and let the supervisor's tools read our stack."""
    prctl = ctypes.CDLL(None).prctl
    _let_be_read(int(os.environ.get("SAFELAUNCH_SUPERVISOR", "0:0").split(":")[0]))
    if not is_rank:
        # Below a shell script: the shell dies with the agent, and the guard ends what it leaves.
        return
    prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != agent:  # it died between our fork and the line above
        os.kill(os.getpid(), signal.SIGKILL)


def _arm_faulthandler(rank_dir: str) -> None:
    """Have the stack of a fatal signal written to `fault-PID.txt` (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL)."""
    if faulthandler.is_enabled():
        return  # by PYTHONFAULTHANDLER or -X faulthandler: to where the user looks for it

    # The file object must outlive this function: faulthandler keeps only the descriptor.
    _arm_faulthandler.file = _new(rank_dir, "fault")  # type: ignore[attr-defined]
    faulthandler.enable(_arm_faulthandler.file, all_threads=True)  # type: ignore[attr-defined]


def _arm_stack_signal(rank_dir: str) -> None:
    """Have all threads' stacks written to `stacks-PID.txt` when asked: where nobody may read our memory."""
    if signal.getsignal(black_box.STACK_SIGNAL) == signal.SIG_DFL:
        _arm_stack_signal.file = _new(rank_dir, "stacks")  # type: ignore[attr-defined]
        faulthandler.register(black_box.STACK_SIGNAL, _arm_stack_signal.file, all_threads=True)  # type: ignore[attr-defined]


def _new(rank_dir: str, what: str) -> Any:
    """An empty file of this process, never behind a link."""
    path = os.path.join(rank_dir, "%s-%d.txt" % (what, os.getpid()))
    return open(path, "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))


def _watch_devices(box, bind):  # type: ignore[no-untyped-def]
    from safelaunch.worker import binding, devices

    if box is not None or bind:
        binding.install(devices.install(box), bind)


def _open_black_box(rank_dir):  # type: ignore[no-untyped-def]
    path = os.environ.get("SAFELAUNCH_BLACK_BOX")
    if not path:
        return None
    box = _PREPARED[0] if _PREPARED else black_box.Writer()
    box.bind(path, int(os.environ["SAFELAUNCH_SLOT"]))
    safelaunch._pulse = box.pulse
    _step(_arm_should_stop, box.stop)
    _step(_arm_expect_same, box)
    _step(_arm_traces, box, rank_dir)
    os.register_at_fork(after_in_child=give_up_pulse)
    return box


def _arm_should_stop(rank):  # type: ignore[no-untyped-def]
    def first() -> bool:
        from safelaunch.worker import stopping  # which most scripts have no use for

        return stopping.begin(rank)

    safelaunch._stop = first


def _arm_expect_same(box):  # type: ignore[no-untyped-def]
    def tell(name: str, value: object) -> None:
        from safelaunch.worker import expected  # likewise
        from safelaunch.worker.announcements import Remarks

        remarks = Remarks(box)
        safelaunch._same = lambda name, value: expected.tell(remarks, name, value)
        expected.tell(remarks, name, value)

    safelaunch._same = tell


def _arm_traces(box, rank_dir):  # type: ignore[no-untyped-def]
    def first(by: int, count: int) -> None:
        from safelaunch.worker import tracing  # which hardly a run has use for

        box.pulse.at_boundary = tracing.Tracer(box, rank_dir).at
        box.pulse.at_boundary(by, count)

    box.pulse.at_boundary = first


def give_up_pulse() -> None:
    """This process is one below the rank."""
    safelaunch._pulse = safelaunch._stop = safelaunch._same = None
