"""What SIGBUS says: mmap(2) has it for a page of a mapped file that lies beyond its end, or that cannot be read."""

from __future__ import annotations

WHAT = "crashed (SIGBUS): the file that it had mapped has become shorter, or cannot be read"
WHY = (
    "SIGBUS: a file that is mapped at this line has become shorter since (truncated, or written anew in place), or its "
    "disk is full or fails",
)
REMEDY = "see who wrote to that file while it was in use: write a new file, and rename it over the old one"
