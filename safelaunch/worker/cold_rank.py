"""Runs in: ranks that were forked. Starts the script again without a fork, where it has changed what the imports of the
fork server had looked at.

Its lines up to there run a second time, so they must not have done anything that stays: an audit hook (PEP 578) sees
what Python does to the outside, and /proc what else was written. Otherwise the rank goes on with what it has, and one
line says what has no effect.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import re
import signal
import stat
import sys
from typing import Any, Dict, Iterator, List, Set, Tuple

from safelaunch.worker.announcements import user_line
from safelaunch.worker.user_code import is_user_code

FILE = "cold.json"  # in the folder of the rank
COMPILED = ".pyc"
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

# Events that leave nothing behind, or what a start from the beginning puts back.
HARMLESS = {
    "import", "compile", "exec", "marshal.loads", "marshal.load", "marshal.dumps", "sys._getframe",
    "sys._getframemodulename", "object.__getattr__", "object.__setattr__", "object.__delattr__", "code.__new__",
    "function.__new__", "builtins.id",
    "os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.putenv", "os.unsetenv", "os.chdir", "os.getxattr",
    "os.listxattr", "glob.glob", "glob.glob/2", "pathlib.Path.glob", "pathlib.Path.rglob", "time.sleep",
    "gc.get_objects", "gc.get_referrers", "gc.get_referents", "array.__new__", "pickle.find_class", "sys.excepthook",
    "sys.settrace", "sys.setprofile", "sys._current_frames", "ctypes.dlopen", "ctypes.dlsym", "ctypes.dlsym/handle",
    "ctypes.cdata", "ctypes.addressof", "ctypes.get_errno", "socket.gethostname", "re.compile", "cpython.run_file",
    "cpython.run_module", "cpython.run_command", "sys.monitoring.register_callback", "builtins.breakpoint",
}  # fmt: skip
# What cannot be done twice, and no event tells of: the text of the script and of its modules has to.
UNSEEN = re.compile(r"\b(?:mkfifo|mknod|setsid)\b")
# How a program reads its standard input, which cannot be read twice where it is no file.
READS_INPUT = re.compile(r"\bstdin\b|\binput\(|\bfileinput\b|\bopen\(0\b|/dev/(?:stdin|fd/0)|\bread\(0\b")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Acts:
    """What the script has done to the outside since it began, as far as Python knows: the first such event."""

    def __init__(self) -> None:
        self.first = ""
        self.audited = False
        self.by_imports = 0  # bytes of compiled modules
        self._looking = True
        self._hook: Any = functools.partial(self._see)
        sys.addaudithook(self._hook)
        self.audited = False  # that was ours

    def stop(self) -> None:
        """Look no more. A hook cannot be taken away (PEP 578), and each `id()` of the program comes to it: from here on
        it is a function of C, at a quarter of the cost, and no frame of Python that torch's compiler would see."""
        self._looking = False
        self._hook.__setstate__((operator.is_, (), {}, None))

    def _see(self, event: str, args: Tuple[Any, ...]) -> None:
        if not self._looking or event in HARMLESS:
            return
        try:
            if not self._is_harmless(event, args):
                self.first, self._looking = event, False
        except Exception:  # what a hook raises, the script would get
            self.first, self._looking = event, False

    def _is_harmless(self, event: str, args: Tuple[Any, ...]) -> bool:
        if event == "open":
            path, _, flags = args
            if isinstance(path, int):
                return True  # a descriptor is open already, and what is written through it is counted
            if flags & WRITING:
                return COMPILED + "." in os.fsdecode(path)
            return not _can_be_read_once(path)
        if event == "sys.addaudithook":
            self.audited = True
            return True
        if event == "os.mkdir":
            return os.path.basename(str(args[0])) == "__pycache__"
        if event == "os.rename" and str(args[1]).endswith(COMPILED):
            self.by_imports += os.stat(args[0]).st_size
            return True
        return False


class Beginning:
    """The process as the script finds it, and what the script does to the outside from there on.

    Args:
        environ: of the rank, as the agent gave it.
        mask: of its signals.
    """

    def __init__(self, environ: Dict[str, str], mask: Set[Any]) -> None:
        self._environ = environ
        self._mask = mask
        self._pid = os.getpid()
        self._folder = os.getcwd()
        self._umask = _umask()
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._cpus = os.sched_getaffinity(0)
        self._ignored = _ignored_signals()
        self._descriptors = _descriptors()
        self._streams = _streams()
        self._written = _written()
        self._acts = _Acts()

    def is_audited(self) -> bool:
        """Whether the script has an audit hook of its own, which sees each import."""
        return self._acts.audited

    def is_over(self) -> None:
        """The script has imported what counts."""
        self._acts.stop()

    def start_over(self, changed: str, module: str) -> None:
        """Start the rank again by itself, if that is possible. Returns where it is not: then that is told.

        Args:
            changed: what the script has done, as what follows on "the script".
            module: which it imports.
        """
        acted = self._acted()
        self._acts.stop()
        file, line = user_line()
        said = {"changed": changed, "module": module, "file": file, "line": line, "too_late": acted}
        try:
            with open(os.path.join(os.environ["SAFELAUNCH_RANK_DIR"], FILE), "w") as record:
                json.dump(said, record)
        except (OSError, KeyError):
            if acted:  # somebody has to say it
                words = changed, file, line, module, acted
                sys.stderr.write("safelaunch: the script %s before %s:%d imports %s, without effect: %s\n" % words)
        if not acted:
            self._restart()

    def _acted(self) -> str:
        """What the script has done that must not be done twice; empty for nothing."""
        if os.getpid() != self._pid:
            return "it is a process below the rank"
        if self._acts.first:
            return "it had done %s before" % self._acts.first
        if _written() - self._written != self._acts.by_imports or self._written < 0:
            return "it had written something before"
        if _streams() != self._streams:
            return "it had read its input, or changed its streams, before"
        texts = list(_texts())
        if _can_be_read_once(0) and any(map(READS_INPUT.search, texts)):
            return "it may have read its input before"
        unseen = next((found[0] for found in map(UNSEEN.search, texts) if found), "")
        if unseen:
            return "it may have used %s before" % unseen
        if len(os.listdir("/proc/self/task")) > 1:
            return "it had started a thread before"
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            return "it had changed its priority before"
        return ""

    def _restart(self) -> None:
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        for number in _ignored_signals() - self._ignored:
            signal.signal(number, signal.SIG_DFL)
        for descriptor in _descriptors() - self._descriptors:
            try:
                os.set_inheritable(descriptor, False)
            except OSError:
                pass  # that of the listing
        os.chdir(self._folder)
        os.umask(self._umask)
        os.sched_setaffinity(0, self._cpus)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], self._environ)


def _can_be_read_once(file: Any) -> bool:
    """Whether what is read of a file, by its path or descriptor, is gone then: of a pipe, a socket, a terminal."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return False  # nothing can be read
    if stat.S_ISCHR(mode):
        return os.isatty(file) if isinstance(file, int) else False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _texts() -> Iterator[str]:
    """Of the script and of its own modules."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and is_user_code(file):
            try:
                with open(file, encoding="utf-8", errors="replace") as source:
                    yield source.read()
            except OSError:
                pass  # of an archive


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _ignored_signals() -> Set[Any]:
    return {number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN}


def _descriptors() -> Set[int]:
    return set(map(int, os.listdir("/proc/self/fd")))


def _streams() -> List[Tuple[int, ...]]:
    """Which files stdin, stdout and stderr are, and how far the first has been read."""
    found: List[Tuple[int, ...]] = []
    for descriptor in range(3):
        try:
            status = os.fstat(descriptor)
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(())
    try:
        found.append((os.lseek(0, 0, os.SEEK_CUR),))
    except OSError:
        pass  # no file
    return found


def _written() -> int:
    """Bytes that this process has written so far, to whatever it was (proc(5)); -1 where that is not to be known."""
    try:
        with open("/proc/self/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("wchar:"))
    except (OSError, StopIteration):
        return -1
