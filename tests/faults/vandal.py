"""Puts a file where the evidence of the next incident will go, as a disk that has become full would refuse it."""

from __future__ import annotations

import os
from pathlib import Path

Path(os.environ["SAFELAUNCH_RANK_DIR"]).parents[1].joinpath("incident-0").touch()
if os.environ["RANK"] == "1":
    raise ValueError("after the vandals")
