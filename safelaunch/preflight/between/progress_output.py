"""Runs in: the probe. What this node knows of the meeting, printed again as a whole with every news."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any, TextIO

from safelaunch.codec import to_json
from safelaunch.preflight.between.facts import Picture


class ProgressOutput:
    """The picture, and what this node is doing: said when it is cut short. May be used by several threads.

    `begun` tells that the others are known to this node, though not yet what they are.
    """

    def __init__(self, picture: Picture, answer: TextIO) -> None:
        self.picture = picture
        self.doing = "import torch"
        self.begun = False
        self._answer = answer
        self._lock = threading.Lock()

    def tell(self, **news: Any) -> None:
        """Add to the picture and print it."""
        with self._lock:
            self.picture = dataclasses.replace(self.picture, **news)
            self._answer.write(json.dumps(to_json(self.picture)) + "\n")
            self._answer.flush()

    def cut_short(self, reason: str) -> None:
        """Tell that there is no more to come, and why."""
        self.tell(**{"unfinished" if self.picture.nodes else "unlooked" if self.begun else "unmet": reason})
