"""What has to be in a line for a reader to look at it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.evidence.logs import messages
from safelaunch.evidence.logs.signatures import Signature, any_of

_NEEDLES = (
    "Traceback", 'File "', "Error: ", "Exception: ", "Exception in thread", "Exception ignored in", "Error in atexit",
    "Fatal Python error", "-- Process", "torch/distributed/run.py",
    "ank  failed", "ank[] failed", "ank  raised", "ank  crashed", "error_handler", "py_callstack",
    *messages.NEEDLES,
)  # fmt: skip


def needles(signatures: Sequence[Signature]) -> tuple[list[bytes], re.Pattern[bytes] | None]:
    """What has to be in a line for it to be of interest, and a pattern for the signatures that do not say."""
    texts = list(_NEEDLES)
    blind = []
    for signature in signatures:
        texts += signature.contains
        if not signature.contains or any(not part.strip("0123456789") for part in signature.contains):
            blind.append(signature.pattern.pattern.encode())
    return [text.encode() for text in dict.fromkeys(texts)], any_of(blind) if blind else None
