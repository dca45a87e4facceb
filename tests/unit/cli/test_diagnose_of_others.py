"""`safelaunch diagnose` of what other users own: where their links lead, who may read the page, and what ends it."""

from __future__ import annotations

import io
import os
import re
import stat
from pathlib import Path

import pytest

from safelaunch import limits, open_folder
from safelaunch.cli import diagnose
from safelaunch.evidence.logs import sieve

LOG = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: my secret words\n'
SOMEBODY_ELSE = 54321


def test_the_link_of_another_user_does_not_lead_to_what_is_not_his(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text(LOG)
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").symlink_to(tmp_path / "private")
    (run / "own.log").write_text("step 1 loss 2.0\n")
    diagnose.run([str(run)])
    assert "my secret words" in capsys.readouterr().out, "a link of ours leads to what is ours"
    looked_at = os.stat

    def of_another(path: str, **more: object) -> os.stat_result:
        found = looked_at(path, **more)  # type: ignore[arg-type]
        is_link = stat.S_ISLNK(found.st_mode)
        return os.stat_result([*found[:4], SOMEBODY_ELSE, *found[5:]]) if is_link else found

    monkeypatch.setattr(os, "stat", of_another)
    diagnose.run([str(run)])
    said = capsys.readouterr().out
    assert "my secret words" not in said
    assert "the link of one user leads there to what is another's" in said


def test_a_file_that_has_been_put_in_the_place_of_another_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("a\n")
    with log.open() as file:
        open_folder.demand_not_led(str(log), file.fileno())
        (tmp_path / "b.log").write_text("b\n")
        os.replace(tmp_path / "b.log", log)
        with pytest.raises(OSError, match="another file has taken its place"):
            open_folder.demand_not_led(str(log), file.fileno())


@pytest.mark.parametrize(("mode", "wanted"), [(0o600, 0o600), (0o644, 0o644)])
def test_a_page_of_what_others_may_not_read_is_for_its_owner_alone(mode: int, wanted: int, tmp_path: Path) -> None:
    log, page = tmp_path / "train.log", tmp_path / "page.html"
    log.write_text(LOG)
    log.chmod(mode)
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        diagnose.run([str(log), "--html", str(page)])
    finally:
        os.umask(before)
    assert stat.S_IMODE(page.stat().st_mode) == wanted


def test_holes_in_files_buy_no_time(tmp_path: Path) -> None:
    for number in range(60):
        with (tmp_path / f"{number}.pt").open("wb") as file:
            file.truncate(1 << 20)
    assert limits.size_of([str(tmp_path)], 6) <= 2 << 20
    (tmp_path / "small").write_bytes(b"x" * 1000)
    (tmp_path / "large").write_bytes(b"x" * (3 << 20))
    assert limits.size_of([str(tmp_path / "small"), str(tmp_path / "large")], 6) >= 3 << 20


def test_a_pipe_without_an_end_comes_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return b"y" * size

    monkeypatch.setattr(sieve, "MOST_PIPED", 1 << 20)
    piped = sieve._Piped(Endless())  # type: ignore[arg-type]
    with pytest.raises(EOFError, match="does not end within 1 MiB"):
        list(iter(lambda: piped.read(1 << 16), b""))
    monkeypatch.setattr(sieve, "MOST_BUSY_S", -1.0)
    with pytest.raises(EOFError, match=re.escape("the limit for a pipe")):
        sieve._Piped(Endless()).read(1 << 16)  # type: ignore[arg-type]


def test_files_of_one_command_share_a_clock() -> None:
    clock = limits.SharedClock()
    first = clock.begin(1 << 20)
    clock._began -= first  # it took all that there was
    clock.end()
    assert clock.begin(1000) < 2 * limits.SECONDS_EACH
