"""Profiles in a temporary folder, and a user of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

WriteProfile = Callable[..., str]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A shell that sets nothing but where the user's own profiles lie."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


@pytest.fixture
def write(tmp_path: Path) -> WriteProfile:
    """Write a profile and return its path; the user's own, found by its name, with `own=True`."""

    def write_profile(text: str, name: str = "mine", own: bool = False) -> str:
        folder = tmp_path / "config" / "safelaunch" / "profiles" if own else tmp_path
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.toml"
        path.write_text(text)
        return str(path)

    return write_profile
