# ruff: noqa: E501 - lines of logs are as long as they are
"""A job whose own numbers or warnings speak against it is not said to be all right."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_no_false_all_clear import STEPS, judged


def megatron(i: int, *, norm: str = "1.204", skipped: int = 0, ms: float = 2100.5, loss: str = "2.1E+00") -> str:
    return f" iteration {i:8d}/  500000 | elapsed time per iteration (ms): {ms} | lm loss: {loss} | grad norm: {norm} | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"


def clocked(minutes: list[int], between: str = "") -> str:
    lines = [
        f"2031-05-04 {m // 60:02d}:{m % 60:02d}:10 | INFO | step {100 * n} loss 2.5\n" for n, m in enumerate(minutes)
    ]
    return between.join(lines)


ODD = {
    "a norm that is no number": ("".join(megatron(i, norm="nan") for i in range(9)), "grad norm is nan or inf"),
    "a norm in a record": ("".join(f"{{'loss': 1.{i}, 'grad_norm': nan, 'epoch': 0.{i}}}\n" for i in range(9)), "grad_norm is nan or inf"),
    "a loss that became nan": (STEPS + "step 81 loss nan\n", "loss is nan or inf"),
    "a loss in the middle": (STEPS + "step 81 loss=inf\n" + STEPS, "loss is nan or inf"),
    "a loss of lightning": (STEPS + "Epoch 3:  6%|6 | 6/99 [00:01<00:10, 3.00it/s, train_loss=nan.0]\n", "train_loss is nan or inf"),
    "a loss of nothing": ("".join(f"{{'loss': 0.0, 'epoch': 0.{i}}}\n" for i in range(9)), "exactly 0"),
    "all steps skipped": ("".join(megatron(i, skipped=5) for i in range(9)), "iterations were skipped"),
    "all steps overflow": ("".join(f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**i}, reducing to {2**i // 2}\nstep {i} loss 9.1\n" for i in range(20, 5, -1)), "overflow"),
    "a step that says it was slow": ("".join(megatron(i, ms=2100 if i != 6 else 99000) for i in range(9)), "47 times as long"),
    "a rate that fell": ("".join(f"step {i} loss 2.0 tps: {'12,413' if i < 6 else '310'}\n" for i in range(9)), "tps fell"),
    "a pause by the clock": (clocked([0, 2, 4, 6, 126]), "2 h 0 min went by"),
    "all steps skipped, by a count": ("".join(f"[INFO] [Rank 0] step={i}, skipped={i}, lr=[0.0]\n" for i in (10, 20)), "all of the first 20 steps were skipped"),
    "a server that generates nothing": ("Engine 000: Avg generation throughput: 0.0 tokens/s, Running: 5 reqs, Waiting: 2 reqs\n" * 4, "no token was generated"),
    "a step of another framework": ("".join(f"Epoch(train) [1][{i}50/1000] time: {0.5 if i != 5 else 90.1} data_time: 0.01 loss: 1.2\n" for i in range(8)), "180 times as long"),
    "a unit behind its number": ("".join(f"train, step {i}, loss 2.5, {1.2 if i != 5 else 300} sec/step\n" for i in range(6)), "250 times as long"),
    "a loss that has grown": ("".join(f"step {i} loss {v}\n" for i, v in enumerate((2.0, 1.9, 1.8, 45000.0, 200000.0))), "loss has grown from 1.8"),
    "a bar that stands": ("".join(f"{i}%|##  | {i}/100 [0{i}:10<10:00,  {1.1 if i < 6 else 440}s/it]\n" for i in range(1, 7)), "400 times as long"),
    "a warning among steps": (STEPS + "2031-05-04 10:00:00,100 - root - WARNING - 2 allocations were tried again.\n" + STEPS, "a warning was written"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_numbers_that_speak_against_a_job_are_told_and_quoted(tmp_path: Path, name: str) -> None:
    text, said = ODD[name]
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL499"
    assert "no failure is shown, but" in verdict.summary
    assert said in verdict.summary
    assert "job.log:" in verdict.because[0]


WELL = {
    "a slow first step": "".join(megatron(i, ms=2100 if i else 90000) for i in range(9)),
    "norms that were none at the start": "".join(megatron(i, norm="inf" if i < 3 else "1.2") for i in range(20)),
    "some steps skipped at the start": "".join(megatron(i, skipped=1 if i < 3 else 0) for i in range(9)),
    "a pause for an evaluation": clocked([0, 2, 4, 6]) + "2031-05-04 00:07:00 | INFO | evaluating 900 samples\n" + clocked([0, 2, 4, 6, 126])[-46:],
    "several ranks by the clock": "".join(line * 3 for line in clocked([0, 2, 4, 6, 8]).splitlines(keepends=True)),
    "warnings before the first step": "2031-05-04 10:00:00,100 - root - WARNING - no cache is used\n" + STEPS,
    "a warning of Python": STEPS + "x.py:3: FutureWarning: WARNING this will go\n" + STEPS,
    "an idle server": "".join(f"Engine 000: Avg generation throughput: {t} tokens/s, Running: {r} reqs, Waiting: 0 reqs\n" for t, r in ((50, 4), (48, 4), (0.0, 0), (0.0, 0), (0.0, 0))),
    "bars of several kinds": "".join(f"Train: {i}%|##  | {i}/100 [00:10<10:00,  1.1s/it]\n" for i in range(1, 9)) + "Val: 5%|# | 1/20 [00:30<10:00,  30.0s/it]\n",
    "a bar that warms up": "".join(f"{i}%|##  | {i}/100 [0{i}:10<10:00,  {90 / i**2:.1f}s/it]\n" for i in range(1, 9)),
    "a warning of no weight": STEPS + "2031-05-04 10:00:00,100 - root - WARNING - the schedule is not set\n" + STEPS,
    "a best loss": "epoch 1 | best loss inf -> 2.1\nepoch 2 | best loss 2.1 -> 2.0\n",
    "a watchdog that ended well": STEPS + "[rank0]:[I ProcessGroupNCCL.cpp:835] [Rank 0] NCCL watchdog thread terminated normally\n" + STEPS,
    "a word": STEPS + "the learning rate: information is in the financial report\n",
}  # fmt: skip


@pytest.mark.parametrize("name", WELL)
def test_what_jobs_do_that_learn_is_not_odd(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, WELL[name]).code == "SL498"


def test_a_job_that_ended_well_overcame_its_warnings_but_not_its_numbers(tmp_path: Path) -> None:
    warned = judged(tmp_path, ODD["a warning among steps"][0] + "Training completed in 3 h\n")
    broken = judged(tmp_path, ODD["a norm that is no number"][0] + "Training completed in 3 h\n")

    assert (warned.code, broken.code) == ("SL498", "SL499")


def test_a_warning_of_no_weight_is_quoted(tmp_path: Path) -> None:
    verdict = judged(tmp_path, WELL["a warning of no weight"])

    assert any("the schedule is not set" in reason for reason in verdict.because)


def test_what_a_healthy_log_that_breaks_off_was_about_is_told(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "".join(f"node1:7:9 [0] NCCL INFO Channel {i:02d}/02 : 0 1\n" for i in range(4)))

    assert verdict.code == "SL499"
    assert "no failure is shown in these lines, and they end in what NCCL says while it starts" in verdict.summary
