"""Checks between the nodes of a job: do they come, agree, and reach each other, and which of them is bad.

One probe on each node (`node_probe`) meets the others at the rendezvous endpoint, in a store of torch that is closed
again before the job's own is opened. What they tell makes a `Picture`; every node judges the same picture, by the
functions in JUDGES, and so says the same.
"""

from __future__ import annotations

from safelaunch.preflight.between.judges import CODES, JUDGES, Judge
from safelaunch.preflight.between.stage import Meeting, compare, extend

__all__ = ["CODES", "JUDGES", "Judge", "Meeting", "compare", "extend"]
