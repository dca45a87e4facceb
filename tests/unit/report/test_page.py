"""report.html: what a reader sees, that it is whole, and that nothing in a log can become markup or a program."""

from __future__ import annotations

import dataclasses
import time
from html.parser import HTMLParser

import pytest
from golden_file import load, names

from safelaunch.diagnosis import diagnose
from safelaunch.model import (
    Case,
    Collective,
    Exit,
    Finding,
    Incident,
    Location,
    Phase,
    ProcessGroup,
    PyError,
    RankFacts,
    Stack,
    Verdict,
)
from safelaunch.report import page
from safelaunch.report import verdict as terminal
from safelaunch.report.page import Surroundings
from safelaunch.run.pages import subject

VOID = {"meta", "br", "hr"}
REFERS = {"src", "href", "srcset", "xlink:href", "action", "data", "poster", "background"}
HOSTILE = (
    "</pre></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>\x1b[31m\x00\x07"
    "\u202e\ud800 {{7*7}} ]]> <!-- &lt; javascript:alert(4)"
)


class Page(HTMLParser):
    """Elements, their attributes and texts; fails where tags do not match."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without an opening"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def within(self, tag: str) -> list[str]:
        """The texts of all elements of a name."""
        return [data for above, data in self.texts if tag in above]

    @property
    def text(self) -> str:
        return "\n".join(data for above, data in self.texts if "style" not in above)

    def section(self, title: str) -> str:
        """The text from one heading of the second level to the next."""
        found: list[str] = []
        inside = False
        for above, data in self.texts:
            if "h2" in above:
                inside = data == title
            elif inside:
                found.append(data)
        return "\n".join(found)


def made(case: Case | None, verdict: Verdict | None, known: Surroundings | None = None, folder: str = "") -> Page:
    return Page(page.build([subject(case, verdict, folder)], known))


def inert(content: Page) -> None:
    """Nothing runs, nothing is fetched."""
    assert not {tag for tag, _ in content.tags} & {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
    for tag, attributes in content.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert not REFERS & set(attributes), (tag, attributes)
    sheets = "".join(content.within("style"))
    assert "url(" not in sheets
    assert "@import" not in sheets
    policy = next(attributes for _, attributes in content.tags if attributes.get("http-equiv"))
    assert (policy["content"] or "").startswith("default-src 'none'")


def hostile_case() -> Case:
    location = Location(HOSTILE, 3, HOSTILE)
    call = Collective(HOSTILE, HOSTILE, 3, 10, HOSTILE, False, 9.0, 2, location)
    ranks = tuple(
        RankFacts(
            rank,
            rank,
            100 + rank,
            error=PyError(HOSTILE, HOSTILE, HOSTILE + "\n" + HOSTILE, 11.0, location, (HOSTILE,)) if rank else None,
            stack=Stack((location,), HOSTILE, HOSTILE, name=HOSTILE),
            collectives=(call,),
            recorded=(call,),
            phases=(Phase(HOSTILE, 8.0),),
            missing=(HOSTILE,),
            exit=Exit(1, 11.5) if rank else None,
            quiet_s=2.0,
        )
        for rank in range(2)
    )
    return Case(Incident("exit", 0, (1,), 11.0), HOSTILE, 2, ranks, groups=(ProcessGroup(HOSTILE, (0, 1)),), now=12.0)


HOSTILE_RUN = Surroundings(
    {"argv": [HOSTILE, 3, None], "run_id": HOSTILE, "mapping": [{"ranks": [{"rank": 0, "host": HOSTILE}, 3]}],
     "started": 1e300, "settings": {HOSTILE: HOSTILE}},
    f"A={HOSTILE}  # shell\nB={HOSTILE}  # {HOSTILE}\n",
    (Finding(code="SL101", severity="warning", summary=HOSTILE, because=(HOSTILE,), remedy=HOSTILE),),
)  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_each_case_has_a_whole_page(name: str) -> None:
    case = load(name)
    content = made(case, diagnose(case))
    inert(content)
    assert "could not be made" not in content.text


@pytest.mark.parametrize("name", names())
def test_the_verdict_has_the_words_of_the_terminal(name: str) -> None:
    case = load(name)
    verdict = diagnose(case)
    content = made(case, verdict, folder="safelaunch_runs/x/incident-0")
    first = next(data for above, data in content.texts if above[-1:] == ("pre",))
    assert first == "\n".join(terminal.lines(verdict, "safelaunch_runs/x/incident-0"))


def test_hostile_content_is_shown_and_does_nothing() -> None:
    verdict = Verdict(code="SL401", summary=HOSTILE, because=(HOSTILE,) * 8, remedy=HOSTILE, slug="exception",
                      kind="crash", culprit_ranks=(1,), host=HOSTILE, traceback=HOSTILE * 3,
                      location=Location(HOSTILE, 1, HOSTILE), process_group=HOSTILE, seq=3)  # fmt: skip
    case = hostile_case()
    built = page.build([subject(case, verdict, HOSTILE, [HOSTILE])], HOSTILE_RUN)
    content = Page(built)
    inert(content)
    assert "could not be made" not in content.text
    assert "<script>alert(1)</script>" in content.text
    assert "\\x1b[31m\\x00" in content.text
    assert not {c for c in built if not c.isprintable() and c not in "\n\t"}
    built.encode("utf-8")


def test_a_message_of_a_megabyte_costs_neither_the_page_nor_the_time() -> None:
    case = hostile_case()
    huge = "x<y> " * 200_000
    ranks = tuple(
        dataclasses.replace(facts, error=PyError("ValueError", huge, huge, 11.0), missing=(huge,))
        for facts in case.ranks
    )
    case = dataclasses.replace(case, ranks=ranks)
    verdict = dataclasses.replace(diagnose(load("exception-in-one-rank")), traceback=huge, because=(huge,))
    started = time.process_time()
    built = page.build([subject(case, verdict)], Surroundings({}, f"A={huge}  # shell\n", ()))
    assert time.process_time() - started < 10
    assert len(built) < 400_000
    inert(Page(built))


def test_what_is_left_out_of_a_traceback_still_announces_the_secrets_behind_it() -> None:
    fields = "".join(f"  field{at}: c2VjcmV0LXZhbHVlLW51bWJlci0{at:03d}\n" for at in range(100))
    manifest = "apiVersion: v1\nkind: Secret\nmetadata:\n" + "  l: z\n" * 20 + f"data:\n{fields}"
    error = PyError("RuntimeError", "cannot apply", f"Traceback:\n{manifest}RuntimeError: cannot apply", 11.0)
    case = hostile_case()
    ranks = tuple(dataclasses.replace(facts, error=error) for facts in case.ranks)

    assert "c2VjcmV0" not in page.build([subject(dataclasses.replace(case, ranks=ranks), None)], None)


def test_the_culprit_is_marked_and_ranks_that_wait_alike_are_folded() -> None:
    case = load("hang-sleep")
    content = made(case, diagnose(case))
    waits = content.section("Who waits for whom")
    assert "ranks 0-1, 3 wait in all_reduce #12 of group 0 for rank 2" in waits
    assert "rank 2 (culprit)" in waits
    boxes = [attributes for tag, attributes in content.tags if tag == "g" and "box" in (attributes.get("class") or "")]
    assert sorted(attributes["class"] or "" for attributes in boxes) == ["box", "box culprit"]
    assert len([1 for _, attributes in content.tags if attributes.get("class") == "arrow"]) == 1


@pytest.mark.parametrize(
    ("name", "line", "arrows"),
    [
        ("hang-lock-held-in-a-barrier", "ranks 1-2 wait for the lock on /data/index, which rank 0 has", 2),
        ("hang-pipe-of-a-waiting-rank", "waits for the other end of pipe:[77], which rank 0 has", 2),
        ("hang-for-a-key-that-nobody-sets", "ranks 1-2 wait for the key lr/39 of the store", 1),
        ("hang-looks-for-a-file-of-rank-0", "wait for `not os.path.exists(done)` to change", 1),
        ("hang-lock-of-another-thread", "waits for thread ", 1),
    ],
)
def test_waits_outside_of_collectives_are_drawn(name: str, line: str, arrows: int) -> None:
    case = load(name)
    content = made(case, diagnose(case))
    assert line in content.section("Who waits for whom")
    assert len([1 for _, attributes in content.tags if attributes.get("class") == "arrow"]) == arrows


def test_ranks_that_wait_in_no_collective_are_drawn() -> None:
    case = load("hang-server-thread-died")
    waits = made(case, diagnose(case)).section("Who waits for whom")
    assert "ranks 1-3 wait for the other end of a connection to 127.0.0.1:4001, which rank 0 has" in waits


def test_a_circle_is_drawn_with_both_arrows() -> None:
    case = load("hang-circle-below-a-collective")
    content = made(case, diagnose(case))
    arrows = [attributes for _, attributes in content.tags if attributes.get("class") == "arrow"]
    assert len(arrows) == 4  # 0 -> 1, 1 -> 0, and ranks 2-3 -> each of them
    waits = content.section("Who waits for whom")
    assert "rank 0 waits in" in waits
    assert "ranks 2-3 wait in" in waits


def test_a_chain_goes_from_left_to_right() -> None:
    case = load("hang-message-chain")
    content = made(case, diagnose(case))
    corners = {}
    box = ""
    for tag, attributes in content.tags:
        if tag == "g":
            box = attributes.get("class") or ""
        elif tag == "rect" and "box" in box:
            corners.setdefault(int(attributes["x"] or 0), []).append(box)
    assert [corners[x] for x in sorted(corners)][-1] == ["box culprit"]
    assert len(corners) == 3


def test_outliers_come_first_among_the_stacks_and_own_frames_stand_out() -> None:
    case = load("hang-sleep")
    content = made(case, diagnose(case))
    titles = [data for data in content.within("h3") if "here" in data]
    assert titles[0] == "rank 2 is here (culprit)"
    assert titles[1] == "ranks 0-1, 3 are here"
    own = [attributes for tag, attributes in content.tags if attributes.get("class") == "own" and tag == "span"]
    library = [attributes for _, attributes in content.tags if attributes.get("class") == "library"]
    assert own
    assert library
    assert "site-packages" not in "".join(
        data for above, data in content.texts if above[-1:] == ("span",) and "train.py" in data
    )


def test_the_calls_around_the_number_tell_who_came() -> None:
    case = load("hang-sleep")
    calls = made(case, diagnose(case)).section("Collectives around the incident")
    assert "As each rank recorded it, group 0 around #12" in calls
    assert "Flight Recorder, group 0 around #12" in calls
    assert "not at #12: rank 2 (last: #11)" in calls
    assert "0-1, 3" in calls


def test_the_timeline_has_a_row_for_each_rank() -> None:
    case = load("hang-sleep")
    content = made(case, diagnose(case))
    timeline = content.section("Timeline")
    for rank in range(4):
        assert f"rank {rank}" in timeline.splitlines()
    assert "no progress for 8.0 s" in timeline
    for tag, attributes in content.tags:
        if tag == "rect":
            assert float(attributes["x"] or 0) >= 0
            assert float(attributes["width"] or 0) > 0


@pytest.mark.parametrize("t", [1e300, 1.7e308, 1e9])
def test_a_moment_that_cannot_be_makes_no_endless_axis(t: float) -> None:
    case = load("hang-sleep")
    first = case.ranks[0]
    late = dataclasses.replace(
        first, collectives=(dataclasses.replace(first.collectives[0], t=t), *first.collectives[1:])
    )
    content = made(dataclasses.replace(case, ranks=(late, *case.ranks[1:])), diagnose(case))
    ticks = [attributes for tag, attributes in content.tags if attributes.get("class") == "tick"]
    assert len(ticks) <= 14


def test_the_surroundings_are_told_without_secrets() -> None:
    known = Surroundings(
        {"argv": ["--nproc-per-node", "2", "train.py", "--api-key", "s3cretvalue"], "run_id": "r1", "safelaunch": "1.2",
         "python": "3.11.9", "mapping": [{"attempt": 0, "ranks": [{"rank": 0, "host": "node-a", "local_rank": 0}]}]},
        "NCCL_DEBUG=WARN  # profile debug, debug.toml:3\nHOME=/home/ada  # shell\nWANDB_API_KEY=abcdef0123  # shell\n",
        (Finding(code="SL110", severity="warning", summary="little room", because=("1 GB",), remedy="make room"),
         Finding(code="SL101", severity="ok", summary="fine")),
    )  # fmt: skip
    content = made(None, None, known)
    assert "safelaunch --nproc-per-node 2 train.py --api-key '<redacted>'" in content.section("Run")
    assert "node-a" in content.section("Run")
    assert "NCCL_DEBUG=WARN  # profile debug, debug.toml:3" in content.section("Environment")
    assert "HOME=/home/ada" in content.section("Environment")
    assert "warning[SL110] \nlittle room" in content.section("Checks before the start")
    assert "1 passed" in content.section("Checks before the start")
    assert "s3cretvalue" not in content.text
    assert "abcdef0123" not in content.text


def test_a_thousand_ranks_fold() -> None:
    small = load("hang-sleep")
    like = {facts.rank: facts for facts in small.ranks}
    size = 1024
    ranks = tuple(
        dataclasses.replace(like[2 if rank == 700 else 0], rank=rank, local_rank=rank, pid=5000 + rank)
        for rank in range(size)
    )
    group = ProcessGroup("0", tuple(range(size)))
    case = dataclasses.replace(small, ranks=ranks, world_size=size, groups=(group,))
    verdict = dataclasses.replace(diagnose(small), culprit_ranks=(700,))
    started = time.process_time()
    built = page.build([subject(case, verdict)])
    assert time.process_time() - started < 10  # 2 s on an idle machine
    assert len(built) < 2_000_000
    content = Page(built)
    assert "ranks 0-699, 701-1023 wait in all_reduce #12 of group 0 for rank 700" in content.text
    assert "rank 700 is here (culprit)" in content.text
    assert "Not drawn: ranks" in content.section("Timeline")
    assert "rank 700" in content.section("Timeline").splitlines()


def test_ranks_that_all_differ_stay_within_bounds() -> None:
    small = load("exception-in-one-rank")
    ranks = tuple(
        dataclasses.replace(
            small.ranks[0],
            rank=rank,
            error=PyError(
                "ValueError", f"{rank}", "\n".join(f"line {rank} {n} " + "x" * 90 for n in range(300)), 11.0 + rank
            ),
            stack=Stack(tuple(Location(f"/a/{rank}/{n}.py", n, f"f{rank}") for n in range(200)), "py-spy"),
        )
        for rank in range(1024)
    )
    case = dataclasses.replace(small, ranks=ranks, world_size=1024)
    built = page.build([subject(case, dataclasses.replace(diagnose(small)))])
    assert len(built) < 2_000_000
    inert(Page(built))


def test_a_section_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("safelaunch.report.page.timeline.section", fails)
    case = load("hang-sleep")
    content = made(case, diagnose(case))
    assert "The section on timeline could not be made" in content.text
    assert content.section("Stacks")


@pytest.mark.parametrize("place", ["mapping", "settings", "cwd"])
def test_a_run_that_is_nested_costs_its_own_section(place: str) -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    run = {"run_id": "r", place: [{"ranks": [{"rank": deep}]}] if place == "mapping" else deep}
    verdict = Verdict(code="SL401", slug="x", kind="crash", summary="it failed")

    built = page.build([page.Subject(verdict)], Surroundings(run=run, environment="A=1  # x\n"), 0.0)

    assert "it failed" in built
    assert "The section on the run could not be made" in built
    assert "A=1" in built
