"""How our `sitecustomize` comes into every Python of the workers: by their PYTHONPATH."""

from __future__ import annotations

import os

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker", "inject")


def pythonpath(known: str | None) -> str:
    """PYTHONPATH with our folder in front. `known` is what it is without us, None where it is not set: an empty one
    means the current directory."""
    return FOLDER if known is None else FOLDER + os.pathsep + known
