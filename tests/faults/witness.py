"""Writes down all that a rank can see of how it was started."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import sys

VOLATILE = {
    "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "WITNESS_OUT", "_", "PWD", "OLDPWD", "SHLVL",
    "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE",  # of the default profile
}  # fmt: skip


class Thing:
    def __init__(self) -> None:
        self.value = 7


def main() -> None:
    rank = int(os.environ["RANK"])
    buffer = io.BytesIO()
    pickle.dump(Thing(), buffer)
    buffer.seek(0)
    seen = {
        "argv": sys.argv,
        "name": __name__,
        "file": __file__,
        "package": __package__,
        "spec": getattr(__spec__, "name", None),
        "path0": sys.path[0],
        "path": sys.path,
        "flags": list(sys.flags),
        "executable": sys.executable,
        "cwd": os.getcwd(),
        # Who reads first gets the line; the other gets the end of the file.
        "stdin": sys.stdin.read() if rank == 0 else "",
        "own_session": os.getsid(0) == os.getpid(),
        "main_pickles": pickle.load(buffer).value,
        "umask": os.umask(0o022),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3],
        "signals": {
            name: str(signal.getsignal(getattr(signal, name))) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
        },
        "env": {
            name: value
            for name, value in sorted(os.environ.items())
            if name not in VOLATILE and not name.startswith("SAFELAUNCH_")
        },
    }
    with open(os.path.join(os.environ["WITNESS_OUT"], f"{rank}.json"), "w") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    main()
