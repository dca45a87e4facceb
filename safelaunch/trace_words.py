"""The words in a rank's slot by which the same steps of several ranks are profiled (`safelaunch trace`).

Written inside workers, whatever their Python (3.8 syntax, standard library only). Layout, from the start of the area,
in items of eight bytes; the first four are the supervisor's, the others the rank's:

    0  the first step to be recorded
    1  how many; 0 is to stop recording at the next step, whatever there is
    2  what is counted: `STEPS` of optimizers, or `MARKS` (calls of `safelaunch.heartbeat`)
    3  1 where kernels of GPUs may be recorded as well (`evidence.cupti`)
    4  the number of the trace, times 256, plus how far the rank is with it (`RECORDING` to `MISSED`)
    5  the last step that was complete when the recording began
    6  the same when it ended

That there is something to read at all is said in the pulse (`pulse.Writer.traced`), beside which a step is counted
anyway. The supervisor writes these words before that one.
"""

from __future__ import annotations

FIRST, COUNT, BY, KERNELS, STATE, BEGUN, ENDED = range(7)
SIZE = 64
STEPS, MARKS = 1, 2
NOTHING, RECORDING, WRITTEN, FAILED, MISSED = range(5)
LARGEST = 1 << 40  # a step that a request may name


def view(memory, base: int):  # type: ignore[no-untyped-def]
    """The words that begin there."""
    return memoryview(memory)[base : base + SIZE].cast("Q")


def state(words, number: int) -> int:  # type: ignore[no-untyped-def]
    """How far a rank is with the trace of this number."""
    said: int = words[STATE]
    return said & 0xFF if said >> 8 == number else NOTHING
