"""`writing.py MIB FOLDER`: writes so much to stdout, in lines of 100 bytes, and to FOLDER when it began and ended.

All ranks begin at the same time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

LINES = ("x" * 99 + "\n") * 640

rank = os.environ["RANK"]
count = int(sys.argv[1]) * (1 << 20) // len(LINES)
folder = Path(sys.argv[2])
(folder / f"{rank}.ready").touch()
while len(list(folder.glob("*.ready"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.001)
begun = time.monotonic()
for _ in range(count):
    sys.stdout.write(LINES)
sys.stdout.flush()
(folder / f"{rank}.json").write_text(json.dumps([begun, time.monotonic(), count * len(LINES)]))
