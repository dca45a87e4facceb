"""`python -m safelaunch`, and the console script."""

from __future__ import annotations

import sys

from safelaunch import streams


def main() -> None:
    """Entry of the console script."""
    streams.take_closed()
    from safelaunch.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    # By -m the working directory comes first, and a `queue.py` there is for the script. The ranks look for themselves.
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]
    main()
