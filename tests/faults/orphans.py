"""Makes an orphan that ends at once, and counts zombies until there are none."""

import os
import time


def zombies() -> int:
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                count += file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            pass
    return count


child = os.fork()
if child == 0:
    if os.fork() == 0:
        os._exit(0)  # its parent is gone or about to go: process 1 must reap it
    os._exit(0)
os.waitpid(child, 0)
while zombies():
    time.sleep(0.05)
os.write(1, b"zombies 0\n")
while True:
    time.sleep(0.1)
