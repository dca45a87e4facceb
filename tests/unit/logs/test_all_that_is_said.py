# ruff: noqa: E501 - lines of logs are as long as they are
"""What a log says of a failure, in words that nobody foresaw, is shown; and no verdict claims that it says no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from log_pieces import MAIN, STEP, marked, traceback
from test_no_false_all_clear import STEPS, judged

from safelaunch.diagnosis.logs.quoting import fit
from safelaunch.evidence.logs import failing

VALUE = traceback("ValueError: the weights are odd", MAIN, STEP)


def told(verdict: object) -> str:
    return "\n".join([verdict.summary, *verdict.because])  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ A: coverage

UNFORESEEN = (
    "[mover-3] the ledger of shards is exhausted: cannot hand out another one",
    "2026-01-02 10:00:00 ERROR quotas.py: tenant 7 has no budget left",
    "FATAL the lattice collapsed at node 10.1.2.3:4444",
    "fabricd: link 5 went down: refused by the far side",
)


@pytest.mark.parametrize("line", UNFORESEEN)
def test_a_record_of_an_end_does_not_hide_what_was_said_before_it(tmp_path: Path, line: str) -> None:
    record = "srun: error: n1: task 0: Exited with exit code 3\n"

    verdict = judged(tmp_path, f"{STEPS}{line}\n{record}")

    assert line.rpartition("] ")[2].rpartition("10:00:00 ")[2] in told(verdict)
    assert "do not say why" not in verdict.summary


def test_what_is_left_over_is_counted_and_the_claim_is_of_what_is_shown(tmp_path: Path) -> None:
    words = ("ledger", "mover", "lattice", "harbour", "anchor", "lantern", "meadow", "orchard")
    lines = "".join(f"ERROR the {word} was lost\n" for word in words)
    caught = "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"

    verdict = judged(tmp_path, lines + caught)

    assert "and 3 more lines that speak of a failure" in verdict.because
    assert "the lines shown here do not say for whom it waited" in verdict.summary


def test_a_line_of_each_kind_is_shown_once_with_those_who_wrote_it(tmp_path: Path) -> None:
    lines = "".join(f"[rank{rank}]: ERROR the ledger of rank {rank} was lost\n" for rank in range(3))

    verdict = judged(tmp_path, f"{lines}srun: error: n1: task 0: Exited with exit code 3\n")

    shown = [line for line in verdict.because if "ledger" in line]
    assert len(shown) == 1
    assert "ranks 0-2" in verdict.summary or "ranks 0-2" in shown[0]


@pytest.mark.parametrize(
    "line",
    [
        "           ^^^^^^^^^^^^^^^",
        "+-----------------------------------------+",
        "| Processes:                     failed    |",
        "frame #3: c10d::TCPStore::fail(std::string) + 0x98 (0x7f /lib/libtorch.so)",
        "    raise RuntimeError(",
        "torch.distributed.all_reduce(failed_ranks(1).cuda())",
        " 45%|####      | 30/67 [27:15<23:13, 37.65s/it]",
        "ERROR 07-16 08:",
        "usage: train.py [--fail-fast]",
    ],
)
def test_what_is_no_sentence_is_no_reason(line: str) -> None:
    assert failing.strength(line, line) == failing.NONE


def test_a_job_that_went_on_is_all_right_and_what_it_met_is_shown(tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"ERROR cache: the ledger was lost, a new one is begun\n{STEPS}Training completed\n")

    assert verdict.code == "SL498"
    assert any("it said as well, and went on: " in line and "ledger" in line for line in verdict.because)


# ------------------------------------------------------------------------------------------------ B: any dress


@pytest.mark.parametrize(
    "dress",
    [
        lambda text: marked(text, "> "),
        lambda text: text.replace("ValueError: the weights are odd", "**ValueError: the weights are odd**"),
        lambda text: text.replace("ValueError: the weights are odd", "`ValueError: the weights are odd`"),
        lambda text: marked(text, "<node-a 17> trainer | "),
        lambda text: marked(text, "14:37 "),
        lambda text: text.replace("ValueError: the", "[n3] 14:37 | ValueError: the"),
    ],
    ids=["quoted", "bold", "code", "a mark that nobody knows", "a time that is cut", "another mark on its last line"],
)
def test_the_last_line_of_a_traceback_is_known_in_any_dress(tmp_path: Path, dress: object) -> None:
    verdict = judged(tmp_path, STEPS + dress(VALUE))  # type: ignore[operator]

    assert verdict.code == "SL401", verdict.summary
    assert "ValueError: the weights are odd" in verdict.summary


def test_an_exception_is_not_lost_where_the_one_after_it_is_cut(tmp_path: Path) -> None:
    cut = "\nDuring handling of the above exception, another exception o"

    assert "the weights are odd" in judged(tmp_path, VALUE + cut).summary


# ------------------------------------------------------------------------------------------------ C: no marks of ranks


@pytest.mark.parametrize(
    "lines",
    [
        "19:14:43  the ledger was lost: ERROR 7\n19:15:02  ERROR the lantern was lost\n",
        "14:43 ERROR the ledger was lost\n15:02 ERROR the lantern was lost\n",
        "17: first\n18: second\n19: third\n20: ERROR the ledger was lost\n",
        "[101] one\n[102] two\n[103] three\n[104] ERROR the ledger was lost\n",
        "[stage3]: ERROR the ledger was lost\n[fold2]: ERROR the lantern was lost\n",
        "rank=16, alpha=32: ERROR the ledger was lost\n",
    ],
    ids=["times", "times without seconds", "numbers of lines", "steps", "stages", "the rank of an adapter"],
)
def test_what_only_looks_like_a_rank_is_none(tmp_path: Path, lines: str) -> None:
    verdict = judged(tmp_path, lines)

    assert "ledger" in told(verdict)
    assert "rank 1" not in told(verdict).replace("rank=16", "")
    assert not verdict.culprit_ranks


def test_the_rank_of_an_adapter_in_a_name_is_none_of_the_job() -> None:
    from safelaunch.evidence.logs.names import hint

    assert hint("runs/lora_rank16/train.log").rank is None
    assert hint("low-rank-8.log").rank is None
    assert hint("rank_3.log").rank == 3


# ------------------------------------------------------------------------------------------------ D, E, G


def test_who_says_that_a_process_was_killed_is_not_the_one_that_failed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, traceback("Exception: Server process exited with code -9. Check server logs.", MAIN))

    assert verdict.code == "SL499"
    assert "the server process died (exit code -9, SIGKILL)" in verdict.summary


def test_a_cancelled_step_is_why_its_tasks_were_terminated(tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-01-02T10:00:00 ***\n"

    verdict = judged(tmp_path, f"{STEPS}{cancelled}srun: error: n1: task 0: Terminated\n")

    assert verdict.code == "SL603"
    assert "Slurm cancelled the job step 77.0 on n1" in verdict.summary
    assert not verdict.culprit_ranks


def test_a_limit_of_the_program_leads_before_what_came_after_it(tmp_path: Path) -> None:
    cut = VALUE.partition("ValueError")[0]

    verdict = judged(
        tmp_path, f"[2026-01-02 10:00:00,1][app][INFO] - Time limit of 9m reached. Stopping training.\n{cut}"
    )

    assert verdict.summary.startswith("`Time limit of 9m reached. Stopping training.`; then ")


def test_the_peer_of_a_message_is_named(tmp_path: Path) -> None:
    send = ("/srv/send.py", 3, "send", "dist.send(tensor=t, dst=5)")
    text = f'Traceback (most recent call last):\n  File "{send[0]}", line {send[1]}, in {send[2]}\n    {send[3]}\n'

    verdict = judged(
        tmp_path,
        f"{text}RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.9]:43185\n",
    )

    assert "a process lost rank 5" in verdict.summary
    assert "do not show which" not in verdict.summary


def test_all_local_ranks_are_told_whose_arguments_were_refused(tmp_path: Path) -> None:
    lines = "".join(f"train.py: error: unrecognized arguments: --local-rank={rank}\n" for rank in (2, 0, 1))

    assert judged(tmp_path, lines).summary.startswith("local ranks 0-2 failed")


def test_a_number_that_cannot_be_is_what_the_log_ends_with(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path, "loading took 3 s\npool_size=131072 is larger than the measured value -561981. It is cut.\n"
    )

    assert verdict.code == "SL499"
    assert "-561981" in verdict.summary
    assert "no failure is shown" not in verdict.summary


# ------------------------------------------------------------------------------------------------ quoting


def test_a_long_line_keeps_the_words_that_decide() -> None:
    line = f"the job was {'very ' * 60}slow and then store->get('0') got error: Connection reset by peer"

    assert "Connection reset by peer" in fit(line, 200)
    assert len(fit(line, 200)) <= 200


def test_a_path_loses_its_folders_before_a_sentence_loses_words() -> None:
    line = f"could not read /srv/{'folder/' * 30}shard.bin, which was to hold sample 7"

    assert fit(line, 120) == "could not read /.../shard.bin, which was to hold sample 7"


@pytest.mark.parametrize(
    "line", ["a" * 4000, " " * 4000 + "x", "Aa." * 1300, "Error" * 800, "[" * 4000, "0x" * 2000, "(" * 3000, "|" * 4000]
)
def test_no_line_takes_long(line: str) -> None:
    begun = time.process_time()
    failing.strength(line, line)
    failing.is_echo(line)
    fit(line, 200)

    assert time.process_time() - begun < 2
