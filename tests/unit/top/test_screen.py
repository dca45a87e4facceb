"""The full screen, driven by textual's own pilot: keys, sizes, and texts of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from recorded import Run, verdict

from safelaunch.model import WorkerProcess
from safelaunch.top import looks, table
from safelaunch.top.folder import Folder
from safelaunch.top.job import Job
from safelaunch.top.picture import Notice, Picture, Row
from safelaunch.top.replay import Replay

pytest.importorskip("textual")

from rich.style import Style
from textual.pilot import Pilot

from safelaunch.top.screen import Text, Top

ROWS = tuple(Row(rank, "node-a", "", 1000 + rank, "works", 7, late_s=0.5 if rank == 2 else None) for rank in range(4))
Acts = Callable[[Top, Pilot[None]], Awaitable[None]]


@dataclass
class Fixed:
    """A run that stands still."""

    shown: Picture = field(default_factory=lambda: Picture("r1", "train.py", "runs", 5.0, ROWS))

    def poll(self) -> None: ...

    def picture(self) -> Picture:
        return self.shown

    def workers(self) -> list[WorkerProcess]:
        return [WorkerProcess(row.rank, row.rank, row.pid, 1, "/rank") for row in self.shown.rows]

    def run_here(self) -> str:
        return "/runs/r1"


def no_end() -> Replay:
    raise AssertionError("this run goes on")


def drive(source: object, acts: Acts, size: tuple[int, int] = (80, 24), end: Callable[[], Replay] = no_end) -> None:
    async def run() -> None:
        top = Top(source, end, 0.2, "late", table.BARS)  # type: ignore[arg-type]
        async with top.run_test(size=size) as pilot:
            await pilot.pause()
            await acts(top, pilot)

    asyncio.run(run())


def seen(top: Top) -> list[str]:
    """What stands on the screen, line by line."""
    return [strip.text.rstrip() for strip in top.screen._compositor.render_strips()]


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for something; the test's timeout is the limit."""
    while not holds():
        await pilot.pause(0.05)


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (120, 10), (40, 12)])
def test_every_rank_has_a_line_and_the_late_one_is_first(size: tuple[int, int]) -> None:
    async def acts(top: Top, _pilot: Pilot[None]) -> None:
        lines = seen(top)
        assert lines[0].startswith("run r1  train.py")
        assert "4 ranks on node-a" in lines[1]
        assert [line.split()[0] for line in lines[3:7]] == ["2", "0", "1", "3"]
        assert "stacks" in lines[-1]
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)

    drive(Fixed(), acts, size)


def test_another_size_is_another_picture() -> None:
    async def acts(top: Top, pilot: Pilot[None]) -> None:
        assert "node-a" not in seen(top)[3]
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: "node-a" in seen(top)[3])
        await pilot.resize_terminal(30, 8)
        await until(pilot, lambda: "+500ms" not in "".join(seen(top)))

    drive(Fixed(), acts)


def test_the_cursor_stays_on_the_rank_that_was_chosen() -> None:
    source = Fixed()

    async def acts(top: Top, pilot: Pilot[None]) -> None:
        assert top.chosen == "2"
        source.shown = replace(source.shown, rows=(*ROWS[:1], replace(ROWS[1], awaited_s=9.0), *ROWS[2:]))
        await until(pilot, lambda: top.chosen == "1")  # nobody has moved it: it is on the row that comes first

        await pilot.press("down")
        assert top.chosen == "2"
        source.shown = replace(source.shown, rows=ROWS)
        await until(pilot, lambda: seen(top)[3].split()[0] == "2")
        assert top.chosen == "2"
        await pilot.press("s")
        await until(pilot, lambda: [line.split()[0] for line in seen(top)[3:7]] == ["0", "1", "2", "3"])
        assert top.chosen == "2"

    drive(source, acts)


def test_the_stacks_of_a_rank_are_a_key_away(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[WorkerProcess] = []

    def stacks_of(worker: WorkerProcess) -> str:
        asked.append(worker)
        return "Thread 1 (idle)\n    load (train.py:5)\x1b[2J"

    monkeypatch.setattr(looks, "stacks_of", stacks_of)

    async def acts(top: Top, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: "load" in "".join(seen(top)))
        assert [one.rank for one in asked] == [2]
        lines = seen(top)
        assert lines[0].startswith("stacks of rank 2, pid 1002")
        assert lines[2] == "    load (train.py:5)\\x1b[2J"
        await pilot.press("escape")
        await until(pilot, lambda: seen(top)[0].startswith("run r1"))

    drive(Fixed(), acts)


def test_stacks_are_taken_from_outside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from safelaunch.evidence import stacks
    from safelaunch.model import Evidence

    folders: list[str] = []

    def collect(_incident: object, worker: WorkerProcess, _deadline: float) -> Evidence:
        folders.append(worker.rank_dir)
        return Evidence("stack", worker.rank, unavailable="py-spy is not installed")

    monkeypatch.setattr(stacks, "collect", collect)

    assert "py-spy is not installed" in looks.stacks_of(Fixed().workers()[0])
    assert folders == [""]  # with one, a signal would ask the rank


def test_evidence_of_all_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "dump", lambda run: f"looked at {run}")

    async def acts(top: Top, pilot: Pilot[None]) -> None:
        await pilot.press("d")
        await until(pilot, lambda: seen(top)[1] == "looked at /runs/r1")
        assert isinstance(top.screen, Text)

    drive(Fixed(), acts)


def test_what_strangers_wrote_is_neither_markup_nor_control() -> None:
    told = (Notice(0.0, "error", "[red]SL301[/red]: \x1b]52;c;aGk=\x07 \u202e"),)
    row = replace(ROWS[0], doing="[bold]x\x1b[2J", host="[link]")
    source = Fixed(Picture("r1\r\n", "[/nothing]", "runs", 5.0, (row,), told, ("[x]\x07",)))

    async def acts(top: Top, _pilot: Pilot[None]) -> None:
        text = "\n".join(seen(top))
        for shown in (
            "[/nothing]",
            "[bold]x\\x1b[2J",
            "[red]SL301[/red]: \\x1b]52;c;aGk=\\x07 \\u202e",
            "r1\\r\\n",
            "[x]\\x07",
        ):
            assert shown in text

    drive(source, acts, (200, 24))


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_the_terminals_own(no_color: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from safelaunch.top import screen

    monkeypatch.setattr(screen, "STYLES", dict(screen.STYLES))
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    source = Fixed(replace(Fixed().shown, rows=(replace(ROWS[0], mood="bad"), replace(ROWS[1], mood="slow"))))

    async def acts(top: Top, _pilot: Pilot[None]) -> None:
        used = set()
        for strip in top.screen._compositor.render_strips():
            for segment in strip:
                style = segment.style or Style()
                used |= {one.number for one in (style.color, style.bgcolor) if one is not None and not one.is_default}
        assert used == (set() if no_color else {1, 3})  # of the sixteen that every terminal defines

    drive(source, acts)


def test_a_run_that_ends_while_it_is_looked_at_can_be_replayed(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    job = Job([Folder(str(run.path))])
    job.poll()

    async def acts(top: Top, pilot: Pilot[None]) -> None:
        await pilot.press("left")  # nothing yet
        assert "runs" in seen(top)[1]
        run.tell(0, verdict())
        run.write("result.json", {"exit_code": 124, "elapsed_s": 3.0})
        await until(pilot, lambda: "has ended with exit code 124" in seen(top)[1])
        await until(pilot, lambda: "back" in seen(top)[-1])
        await pilot.press("left")
        await until(pilot, lambda: "is replayed" in seen(top)[1])
        await pilot.press("right")
        await until(pilot, lambda: "has ended with exit code 124" in seen(top)[1])

    drive(job, acts, end=lambda: Replay(job.folders))


def test_more_ranks_than_lines_can_be_scrolled() -> None:
    rows = tuple(replace(ROWS[0], rank=rank) for rank in range(300))

    async def acts(top: Top, pilot: Pilot[None]) -> None:
        await pilot.press("end")
        await until(pilot, lambda: any(line.split()[:1] == ["299"] for line in seen(top)))

    drive(Fixed(replace(Fixed().shown, rows=rows)), acts)


def test_a_fault_of_ours_ends_the_screen_and_is_kept() -> None:
    source = Fixed()
    fault = RuntimeError("ours")

    def poll() -> None:
        raise fault

    source.poll = poll  # type: ignore[method-assign]
    top = Top(source, no_end, 0.2, "late", table.BARS)

    async def run() -> None:
        async with top.run_test() as pilot:
            await until(pilot, lambda: top.fault is not None)

    asyncio.run(run())
    assert top.fault is fault
