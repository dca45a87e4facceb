"""Which code is the user's, by its path: of many ways to install Python, and of bundles from other machines."""

from __future__ import annotations

import os
import threading

import pytest

from safelaunch.user_code import is_user_code
from safelaunch.worker import user_code as in_workers

USERS = [
    "train.py",
    "/w/train.py",
    "/home/ada/src/package/model.py",  # an editable install
    "/w/train.pyz/train.py",  # a zipapp
    "/w/lib/python/train.py",
    "/w/torch/train.py",  # a folder of the user's that is called torch
    "/w/safelaunch/train/loop.py",
    "/tmp/ipykernel_71/1234.py",
    "/app/runfiles/main/train.py",
    "/w/data.cuda.py",
    "/w/site-packages.py",
]

OTHERS = [
    "",
    "<string>",
    "<frozen importlib._bootstrap>",
    "??",
    "/usr/lib/python3.11/threading.py",  # Debian
    "/usr/lib/python3/dist-packages/numpy/core.py",
    "/usr/local/lib/python3.11/dist-packages/torch/nn/modules/module.py",
    "/usr/lib64/python3.9/multiprocessing/queues.py",  # RHEL, Rocky, Fedora, SLES
    "/usr/lib64/python3.9/site-packages/numpy/core.py",
    "/opt/conda/envs/train/lib/python3.10/queue.py",
    "/home/ada/.pyenv/versions/3.12.1/lib/python3.12/socket.py",
    "/home/ada/.local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/lib/python3.13t/threading.py",
    "/nix/store/abc-python3-3.11.6/lib/python3.11/selectors.py",
    "/usr/lib/python311.zip/threading.py",
    "/opt/pypy/lib/pypy3.10/threading.py",
    "/w/.venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
    "/home/ada/pytorch/torch/distributed/distributed_c10d.py",  # torch in its own source tree
    "/home/ada/pytorch/torch/utils/data/dataloader.py",
    "/home/ada/pytorch/torch/_dynamo/eval_frame.py",
    "/home/ada/safelaunch/safelaunch/worker/collectives.py",
    "/home/ada/safelaunch/safelaunch/pulse.py",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/w/csrc/kernels.cu",
    "../sysdeps/unix/sysv/linux/poll.c",
]


@pytest.mark.parametrize("file", USERS)
def test_code_of_the_users_own(file: str) -> None:
    assert is_user_code(file)
    assert in_workers.is_user_code(file)


@pytest.mark.parametrize("file", OTHERS)
def test_code_of_others(file: str) -> None:
    assert not is_user_code(file)
    assert not in_workers.is_user_code(file)


def test_a_worker_knows_its_own_standard_library_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_workers.is_user_code(threading.__file__)

    monkeypatch.setattr(in_workers, "STDLIB", "/home/ada/Python-3.12.1/Lib" + os.sep)

    assert not in_workers.is_user_code("/home/ada/Python-3.12.1/Lib/threading.py")
