"""NCCL's own configuration files: they add variables where the environment has none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from safelaunch import regular
from safelaunch.model import Origin
from safelaunch.settings.lint.context import Setting

SYSTEM_FILE = "/etc/nccl.conf"
LARGEST = 1 << 20  # characters that are looked at
_LINE = re.compile(r"\s*([A-Za-z_]\w*)=(.*)")


def settings(environ: Mapping[str, str], system_file: str = SYSTEM_FILE) -> tuple[Setting, ...]:
    """What the configuration files of NCCL set, the stronger file last.

    The user's file is $NCCL_CONF_FILE or ~/.nccl.conf; it wins over /etc/nccl.conf, and the environment over both.
    Files that cannot be read are left out, as NCCL leaves them out.

    Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#system-configuration, and setEnvFile in
    NVIDIA/nccl src/misc/param.cc.

    Args:
        environ: of the ranks.
        system_file: the path of the system's file.
    """
    home = environ.get("HOME", "")
    own = environ.get("NCCL_CONF_FILE") or (os.path.join(home, ".nccl.conf") if home else "")
    return tuple(setting for path in (system_file, own) if path for setting in _read(path))


def _read(path: str) -> Iterator[Setting]:
    for number, line in enumerate((regular.text(path, LARGEST) or "").splitlines(), 1):
        match = _LINE.match(line)  # a line that starts with # does not match
        if match:
            yield Setting(match[1], match[2], Origin("file", f"{path}:{number}"), of_nccl_conf=True)
