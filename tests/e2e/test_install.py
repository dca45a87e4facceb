"""The wheel, the sdist and an editable install each bring the profiles and the console script."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from harness import REPOSITORY, environment

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    # PYTHONPATH would find the checkout instead of what was installed.
    process = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment(PYTHONPATH=None), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, REPOSITORY, cwd=folder)
    return folder


def test_wheel_and_sdist_hold_the_profiles_and_the_licence(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")

    packed = zipfile.ZipFile(wheel).namelist()
    assert "safelaunch/profiles/debug.toml" in packed
    assert "safelaunch/worker/inject/sitecustomize.py" in packed
    assert "safelaunch/py.typed" in packed
    assert any(name.endswith("LICENSE") for name in packed)
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/profiles/debug.toml") for name in archive.getnames())


@pytest.mark.parametrize(
    "form", ["wheel", *(pytest.param(form, marks=pytest.mark.long) for form in ("sdist", "editable"))]
)
def test_a_new_environment_finds_the_profiles(form: str, built: Path, tmp_path: Path) -> None:
    what = {
        "wheel": [next(built.glob("*.whl"))],
        "sdist": [next(built.glob("*.tar.gz"))],
        "editable": ["--editable", REPOSITORY],
    }[form]
    run(sys.executable, "-m", "venv", tmp_path / "new", cwd=tmp_path)
    binaries = tmp_path / "new" / "bin"
    # Without its dependencies: none of these commands needs them, torch least of all.
    run(binaries / "pip", "install", "--quiet", "--no-deps", *what, cwd=tmp_path)

    listing = run(binaries / "safelaunch", "profile", "list", cwd=tmp_path)

    assert {line.split()[0] for line in listing.splitlines() if not line.startswith(" ")} >= {
        "default",
        "debug",
        "production",
    }
    assert "SL401" in run(binaries / "safelaunch", "explain", "SL401", cwd=tmp_path)
    assert "torchrun options" in run(binaries / "python", "-m", "safelaunch", "--help", cwd=tmp_path)


def test_the_installed_launcher_runs_a_job(built: Path, tmp_path: Path) -> None:
    # A new environment that sees the torch of this one, and safelaunch from the wheel alone.
    run(sys.executable, "-m", "venv", tmp_path / "new", cwd=tmp_path)
    binaries = tmp_path / "new" / "bin"
    run(binaries / "pip", "install", "--quiet", "--no-deps", next(built.glob("*.whl")), cwd=tmp_path)
    import torch

    site = next((tmp_path / "new" / "lib").glob("python*/site-packages"))
    (site / "torch_of_the_tests.pth").write_text(os.path.dirname(os.path.dirname(torch.__file__)) + "\n")

    out = run(
        binaries / "safelaunch", "--nproc-per-node", 2, REPOSITORY / "tests" / "faults" / "hello.py", cwd=tmp_path
    )

    assert sorted(out.splitlines()) == ["hello 0", "hello 1"]
