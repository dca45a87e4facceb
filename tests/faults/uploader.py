"""Ends well and leaves a process that finishes its work a little later."""

import subprocess
import sys

subprocess.Popen([sys.executable, "-c", "import time, pathlib; time.sleep(1.5); pathlib.Path('uploaded').touch()"])
