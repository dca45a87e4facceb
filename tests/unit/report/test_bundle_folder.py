from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from safelaunch import files
from safelaunch.codec import from_json
from safelaunch.diagnosis import diagnose
from safelaunch.evidence import case as cases
from safelaunch.model import Case, Evidence, Verdict
from safelaunch.report import bundle

GOLDEN = Path(__file__).resolve().parents[2] / "cases" / "exception-in-one-rank" / "case.json"


def test_a_bundle_diagnoses_to_the_same_verdict_elsewhere(tmp_path: Path) -> None:
    case = from_json(Case, json.loads(GOLDEN.read_text()))
    verdict = diagnose(case)
    evidence = (Evidence("kernel", 3, {"state": "S"}), Evidence("stack", 3, unavailable="py-spy is not installed"))
    folder = tmp_path / "incident-0"

    bundle.write(str(folder), case, verdict, evidence, cases.stack_text)

    assert from_json(Verdict, json.loads((folder / "verdict.json").read_text())) == verdict
    assert diagnose(from_json(Case, json.loads((folder / "evidence/case.json").read_text()))) == verdict
    printed = (folder / "verdict.txt").read_text()
    assert verdict.summary in printed
    assert "\x1b" not in printed
    for facts in case.ranks:
        assert (folder / f"evidence/rank_{facts.rank:03d}/stack.txt").read_text().strip()
    gap = json.loads((folder / "evidence/rank_003/stack.json").read_text())
    assert gap["unavailable"] == "py-spy is not installed"


def test_a_full_disk_sends_the_evidence_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = from_json(Case, json.loads(GOLDEN.read_text()))
    verdict = diagnose(case)
    memory, temporary = tmp_path / "memory", tmp_path / "temporary"
    memory.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(bundle, "MEMORY", str(memory))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    full: list[str] = ["run"]
    write = files.write_whole

    def write_whole(path: str, data: bytes) -> None:
        if len(data) > 2000 and any(f"/{name}/" in path for name in full):  # the small ones still fit
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(path, data)

    monkeypatch.setattr(files, "write_whole", write_whole)
    for parent, next_full in ((memory, "memory"), (temporary, "temporary")):
        folder, said = bundle.write(str(tmp_path / "run" / "incident-0"), case, verdict, (), cases.stack_text)
        assert Path(folder).parent == parent
        assert said.endswith(f"case.json: No space left on device; it is in {folder}")
        assert diagnose(from_json(Case, json.loads((Path(folder) / "evidence/case.json").read_text()))) == verdict
        shutil.rmtree(folder)
        full.append(next_full)
    folder, said = bundle.write(str(tmp_path / "run" / "incident-0"), case, verdict, (), cases.stack_text)
    assert folder == ""
    assert said.endswith("case.json: No space left on device")
    assert not [*memory.iterdir(), *temporary.iterdir()]
