"""The watch over ranks that have called `safelaunch.join()`: a process that the first of them has started."""

from __future__ import annotations

import contextlib
import os
import shutil

from safelaunch.launch import joined
from safelaunch.model import Settings

LINGER_S = 10.0  # ranks of a job come one after the other, and may be started again


def is_of_join(folder: str, lock: int) -> bool:
    """Whether a rank has made this folder for us, and holds its lock: what is in any other one is not ours.

    Args:
        folder: as `worker.standing_watch` names them.
        lock: a descriptor.
    """
    if not os.path.basename(folder).startswith(f"safelaunch-join-{os.geteuid()}-"):
        return False
    try:
        held, made = os.fstat(lock), os.lstat(os.path.join(folder, "lock"))
        return os.path.samestat(held, made) and os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return False


def watch(settings: Settings, folder: str, lock: int) -> None:
    """Watch until the last rank has ended.

    Args:
        settings: as `safelaunch exec` has them, from the environment.
        folder: in which ranks say who they are.
        lock: the descriptor of its lock, which says that somebody watches for as long as this process lives.
    """
    os.set_inheritable(lock, False)
    _clear(folder)
    joined.prepare(folder)  # the ranks wait for it, and not for what is loaded now
    from safelaunch.run.console import Console
    from safelaunch.run.exec.plan import plan
    from safelaunch.run.exec.watch import Watch
    from safelaunch.run.own_faults import contained

    console = Console(settings)
    with contained(console.degraded, "the ranks that have joined are not watched"):
        made = plan(settings, folder, ["safelaunch.join()"])
        watching = Watch(folder, settings, made, console, None, lambda: False, lambda: None)
        while True:
            watching.run_alone(LINGER_S)
            os.unlink(os.path.join(folder, "watcher"))  # who comes from here on waits for another one
            watching.poll()
            if not watching.alive:
                break
            joined.sign(folder)
        watching.conclude(None)
    console.finish()
    over = f"{folder}.{os.getpid()}"
    os.rename(folder, over)
    shutil.rmtree(over, ignore_errors=True)


def _clear(folder: str) -> None:
    """Take away what one has left that was killed."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == "lock":
            continue
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
