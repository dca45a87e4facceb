# ruff: noqa: E501 - lines of logs are as long as they are
"""What a log still says where its traceback is cut off, where it points to another exception, and whose it is."""

from __future__ import annotations

from pathlib import Path

from log_pieces import rank
from test_no_false_all_clear import STEPS, judged

HEAD = "Traceback (most recent call last):\n"
RUN = '  File "/home/u/serve.py", line 70, in run\n    self.step(batch)\n'


def test_the_last_frame_of_a_traceback_that_is_cut_off_leads(tmp_path: Path) -> None:
    text = (
        f"[2031-05-15 18:36:47 TP3] Scheduler hit an exception: {HEAD}{RUN}"
        + '  File "/home/u/pool.py", line 12, in take\n    raise RuntimeError(f"no slots'
    )
    verdict = judged(tmp_path, STEPS + text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL499", ())
    assert verdict.summary == "rank 3 raised RuntimeError in take (pool.py:12), and its message is cut off"


def test_a_wait_in_which_a_traceback_is_cut_off_blames_nobody(tmp_path: Path) -> None:
    text = HEAD + RUN + '  File "/home/u/serve.py", line 80, in step\n    work.wait()\n  Fil'
    verdict = judged(tmp_path, STEPS + rank(1, text))

    assert (verdict.code, verdict.culprit_ranks) == ("SL499", ())
    assert "a traceback of rank 1 is cut off at `work.wait()`" in verdict.summary
    assert any("may be of another rank" in reason for reason in verdict.because)


def test_a_traceback_of_the_launcher_that_is_cut_off_is_a_failure(tmp_path: Path) -> None:
    elastic = "/opt/lib/python3.11/site-packages/torch/distributed/elastic"
    text = f'in _invoke_run\n    self._rendezvous(group)\n  File "{elastic}/rendezvous/static_tcp_rendezvous.py", line 67, in next_rendezvous\n    self._store = TCPStore(\ntorch.di'
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL499"
    assert "a traceback of the launcher is cut off at `self._store = TCPStore(`" in verdict.summary


def test_a_port_that_the_launcher_could_not_bind_is_no_ranks(tmp_path: Path) -> None:
    text = (
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
        + HEAD
        + '  File "/usr/local/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n  File "/opt/lib/python3.11/site-packages/torch/distributed/run.py", line 879, in main\n    run(args)\n'
    )
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL424"
    assert verdict.summary == "the launcher failed, before any rank ran: the port was taken (29500)"


def test_what_an_inner_exception_says_stands_in_the_headline(tmp_path: Path) -> None:
    text = "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 10.0.0.1:1234\ntorch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.\n"
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL602"
    assert "timed out after 60s while trying to connect to 10.0.0.1:1234" in verdict.summary
    assert "See inner" not in verdict.summary


def test_tasks_of_slurm_that_stand_for_nodes_are_no_ranks(tmp_path: Path) -> None:
    text = "srun: error: node07: task 0: Out Of Memory\nsrun: error: node08: task 1: Terminated\nsrun: error: node09: task 2: Terminated\n"
    verdict = judged(tmp_path, STEPS + text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL404", ())
    assert "node07" in verdict.summary


def test_the_words_of_nccl_belong_to_the_marked_line_before_them(tmp_path: Path) -> None:
    text = "[rank7]:[E814 01:57:12.98 ProcessGroupNCCL.cpp:542] [Rank 7] Collective WorkNCCL(SeqNum=19, OpType=ALLREDUCE, NumelIn=19, NumelOut=19, Timeout(ms)=600000) raised the following async exception: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\n\n"
    verdict = judged(tmp_path, STEPS + text)

    assert verdict.code == "SL426"
    assert "rank 7" in verdict.summary


def test_a_distributed_checkpoint_names_the_ranks_whose_parts_failed(tmp_path: Path) -> None:
    one = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])\n"
    both = one.replace("[3]", "[2, 3]")

    assert judged(tmp_path, STEPS + rank(1, HEAD + RUN + one)).culprit_ranks == (3,)
    verdict = judged(tmp_path, STEPS + rank(1, HEAD + RUN + both))
    assert verdict.culprit_ranks == ()
    assert "ranks 2 and 3" in verdict.summary


def test_what_a_traceback_that_is_cut_off_was_raised_for_is_known(tmp_path: Path) -> None:
    cause = f"{RUN}RuntimeError: the shard has no index\n\n"
    text = f"{cause}The above exception was the direct cause of the following exception:\n\n{HEAD}{RUN}"
    verdict = judged(tmp_path, STEPS + rank(2, text))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (2,))
    assert "rank 2 raised RuntimeError: the shard has no index" in verdict.summary
