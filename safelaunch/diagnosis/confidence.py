"""How sure a verdict is, a step up or down."""

from __future__ import annotations

from safelaunch.model import Confidence

HIGHER: dict[Confidence, Confidence] = {"low": "medium", "medium": "high", "high": "high"}
LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}
