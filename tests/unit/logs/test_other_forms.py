# ruff: noqa: E501 - lines of logs are as long as they are
"""Tracebacks in boxes of rich and in documents of torch elastic are read as Python's own; launchers that fail alone."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from log_pieces import SITE, marked, traceback
from test_no_false_all_clear import judged

from safelaunch.evidence.logs.needles import needles
from safelaunch.evidence.logs.sieve import Sieve
from safelaunch.evidence.logs.signatures import shipped

WIDTH = 60
STEPS = "".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(20))


def box(*lines: str, top: bool = True) -> str:
    """Lines in a box, as rich draws it."""
    title = " Traceback (most recent call last) ".center(WIDTH, "\u2500")
    head = f"\u256d{title}\u256e\n" if top else ""
    body = "".join(f"\u2502 {line:<{WIDTH - 2}} \u2502\n" for line in lines)
    return head + body + "\u2570" + "\u2500" * WIDTH + "\u256f\n"


LINES = (
    "/srv/project/with/a/long/path/that/is/wrapped-",
    "here/train.py:461 in",
    " load_states",
    "",
    "  459 \u2502   # the states",
    "\u2771 461 \u2502   states = saved['states']",
    "  462 \u2502   for name in states:",
)


@pytest.mark.parametrize("top", [True, False])
@pytest.mark.parametrize("mark", ["[rank3]: ", ""])
def test_a_box_of_rich_is_a_traceback(tmp_path: Path, top: bool, mark: str) -> None:
    verdict = judged(tmp_path, marked(box(*LINES, top=top) + "KeyError: 'states'\n", mark))

    assert verdict.code == "SL401"
    assert verdict.culprit_ranks == ((3,) if mark else ())
    assert verdict.location is not None
    assert verdict.location.file == "/srv/project/with/a/long/path/that/is/wrapped-here/train.py"
    assert (verdict.location.line, verdict.location.function) == (461, "load_states")
    assert "states = saved['states']" in verdict.traceback
    assert "not in these logs" not in verdict.remedy


def test_a_table_in_a_box_is_none(tmp_path: Path) -> None:
    table = "".join(f"\u2502 step {n} \u2502 loss {2 - n / 9:.3f} \u2502 in train.py \u2502\n" for n in range(30))

    assert judged(tmp_path, STEPS + table).code == "SL498"


def test_bars_with_the_same_sign_are_passed_over() -> None:
    """A job writes hundreds of thousands of them: each that is looked at costs time."""
    bars = "".join(f"Epoch 0: {n}%|##\u2502 {n}/90 [00:01<00:10, 3.00it/s]\r" for n in range(90)).encode()

    assert list(Sieve(*needles(shipped())).lines_of(BytesIO(bars + b"\n"))) == []


HEAD = "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:"
RUN = f'  File "{SITE}/torch/distributed/run.py", line 702, in main\n    run(args)\n'


def document(said: str, callstack: object) -> str:
    content = {"message": {"message": said, "extraInfo": {"py_callstack": callstack, "timestamp": "1660000000"}}}
    return f"{HEAD}{json.dumps(content, indent=2)}\n"


def test_a_document_leads_to_the_exception_that_was_the_direct_cause(tmp_path: Path) -> None:
    first = traceback("RuntimeError: connect() timed out. Original timeout was 60000 ms.", (f"{SITE}/a.py", 1, "store"))
    outer = "Traceback (most recent call last):\n" + RUN
    said = "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details."
    chain = f"{first}\nThe above exception was the direct cause of the following exception:\n\n{outer}{said}\n"
    text = document(said, chain)
    for shown in (text, text[: text.index("run.py") + 20]):
        verdict = judged(tmp_path, shown)

        assert verdict.code == "SL602"
        assert "connect() timed out" in verdict.summary
        assert "inner exception" not in verdict.summary


@pytest.mark.parametrize("cut", [False, True])
def test_a_launcher_that_was_not_allowed_something_failed_before_any_rank_ran(tmp_path: Path, cut: bool) -> None:
    text = document("RuntimeError: Permission denied", [RUN, f'  File "{SITE}/b.py", line 5, in f\n    g()\n'])
    verdict = judged(tmp_path, text[: text.index("b.py")] if cut else text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL601", ())
    assert "before any rank ran" in verdict.summary
    assert "Permission denied" in verdict.summary
    assert "1024" in verdict.remedy


def test_what_python_prints_after_a_document_is_the_same_exception(tmp_path: Path) -> None:
    shown = traceback("ValueError: bad sample 7", ("/srv/train.py", 12, "step"))
    for callstack in (shown, [shown.split("\n", 1)[1].rpartition("ValueError")[0]]):
        verdict = judged(tmp_path, STEPS + document("ValueError: bad sample 7", callstack) + shown)

        assert verdict.summary.startswith("a process raised ValueError: bad sample 7")


def test_a_port_that_a_launcher_may_not_listen_on_is_told(tmp_path: Path) -> None:
    said = "DistNetworkError: The server socket has failed to listen. port: 80, useIpv6: false, name: EACCES, message: permission denied"

    assert "it may not listen on port 80" in judged(tmp_path, document(said, [RUN])).summary


def test_each_line_of_a_document_may_have_the_mark_of_torchs_logger(tmp_path: Path) -> None:
    frames = ['  File "/srv/train.py", line 12, in step\n    loss = f(x)\n']
    lines = document("ValueError: bad sample 7", frames).removeprefix(HEAD)
    mark = "E0302 10:00:52.816000 3900 torch/distributed/elastic/multiprocessing/errors/error_handler.py:141] "
    verdict = judged(tmp_path, marked(lines, mark))

    assert verdict.location is not None
    assert verdict.summary.startswith("a process raised ValueError: bad sample 7")


def test_another_document_with_messages_is_no_traceback_and_hides_nothing(tmp_path: Path) -> None:
    for text in (
        '{"message": {"level": "error", "text": "the disk failed"}}',
        '  "message": {\n    "message": "ERROR: the disk failed",',
    ):
        assert judged(tmp_path, f"{STEPS}{text}\n").code != "SL498", text


def test_a_path_that_a_launcher_may_not_use_is_told(tmp_path: Path) -> None:
    text = document("PermissionError: [Errno 13] Permission denied: '/logs/run'", [RUN])

    assert "/logs/run" in judged(tmp_path, text).summary


def test_a_document_of_a_rank_is_its_exception(tmp_path: Path) -> None:
    frames = ['  File "/srv/train.py", line 12, in step\n    loss = f(x)\n']
    verdict = judged(tmp_path, STEPS + marked(document("ValueError: bad sample 7", frames), "[rank2]:"))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (2,))
    assert verdict.summary == "rank 2 raised ValueError: bad sample 7"


@pytest.mark.parametrize(
    ("function", "code", "error", "option", "value"),
    [
        ("determine_local_world_size", "return int(nproc_per_node)", "ValueError: invalid literal for int() with base 10: '--seed'", "--nproc-per-node", "'--seed'"),
        ("determine_local_world_size", "raise ValueError(", "ValueError: Unsupported nproc_per_node value: many", "--nproc-per-node", "'many'"),
        ("parse_min_max_nnodes", "min_nodes = int(arr[0])", "ValueError: invalid literal for int() with base 10: 'two'", "--nnodes", "'two'"),
        ("config_from_args", "port = int(args.master_port)", "ValueError: invalid literal for int() with base 10: '29k'", "--master-port", "'29k'"),
    ],
)  # fmt: skip
def test_an_option_that_a_launcher_does_not_take_is_named(
    tmp_path: Path, function: str, code: str, error: str, option: str, value: str
) -> None:
    text = f'Traceback (most recent call last):\n  File "{SITE}/torch/distributed/run.py", line 9, in {function}\n    {code}\n{error}\n'
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL601"
    assert f"{option} does not take {value}" in verdict.summary
    assert option in verdict.remedy
