"""How sure a verdict is, a step up or down, and verdicts that nothing makes surer."""

from __future__ import annotations

from safelaunch.model import Confidence

HIGHER: dict[Confidence, Confidence] = {"low": "medium", "medium": "high", "high": "high"}
LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}
NOTHING_WRONG = {"SL502"}
