# ruff: noqa: E501 - lines of logs are as long as they are
"""What an error's own words say of its class, and advice that fits it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, rank, traceback

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.model import Verdict


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "out.log").write_text(text)
    return diagnose(read([str(tmp_path / "out.log")]))


# An exception, its code, and a word of the advice.
RAISED = {
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": ("SL428", "ECC"),
    "RuntimeError: CUDA driver error: system not yet initialized": ("SL401", "fabric manager"),
    "RuntimeError: CUDA error: no kernel image is available for execution on the device": ("SL401", "get_arch_list"),
    "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version": ("SL401", "driver"),
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).": ("SL401", "driver"),
    "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable": ("SL401", "compute mode"),
    "torch.AcceleratorError: CUDA error: unknown error": ("SL401", "Xid"),
    "RuntimeError: No CUDA GPUs are available": ("SL425", "nvidia-smi"),
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered": ("SL427", "CUDA_LAUNCH_BLOCKING"),
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`": (
        "SL427",
        "CUDA_LAUNCH_BLOCKING",
    ),
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": (
        "SL401",
        "memory of the GPU is full",
    ),
    "OSError: You are trying to access a gated repo.": ("SL401", "HF_TOKEN"),
    "huggingface_hub.errors.LocalEntryNotFoundError: it is not in the local cache": ("SL401", "HF_HUB_OFFLINE"),
    "PermissionError: [Errno 13] Permission denied: '/results/run1'": ("SL401", "owns that path"),
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.bin'": ("SL401", "mounts"),
    "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory": (
        "SL409",
        "LD_LIBRARY_PATH",
    ),
    "Exception: Current loss scale already at minimum - cannot decrease scale anymore.": ("SL401", "bf16"),
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set": (
        "SL401",
        "launcher",
    ),
}


@pytest.mark.parametrize("error", RAISED)
def test_an_exception_has_the_class_and_the_advice_of_its_words(tmp_path: Path, error: str) -> None:
    code, advice = RAISED[error]
    verdict = judged(tmp_path, rank(3, traceback(error, MAIN)))

    assert (verdict.code, verdict.culprit_ranks) == (code, (3,))
    assert advice in verdict.remedy
    assert ("CUDA_LAUNCH_BLOCKING" in verdict.remedy) == (code == "SL427")


# What is said without a traceback.
SAID = {
    "train.py: error: unrecognized arguments: --lr 1": "unrecognized arguments: --lr 1",
    "/usr/bin/python3: No module named adapters": "No module named adapters",
    "/usr/bin/python: Error while finding module specification for 'a.b' (ModuleNotFoundError: No module named 'a')": "No module named 'a'",
    "/usr/bin/python3: error while loading shared libraries: libx.so.1: cannot open shared object file": "libx.so.1",
    "Could not override 'optim.lr'.": "optim.lr",
    "F0102 10:00:00.123456 4712 tensor_util.cc:88] Check failed: n == m (3 vs. 4)": "n == m",
    "python: /src/kernel.cc:42: void f(int): Assertion `n > 0' failed.": "n > 0",
    "ssh: connect to host worker-2 port 22: Connection refused": "worker-2 port 22",
    "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).": "29500",
}


@pytest.mark.parametrize("line", SAID)
def test_a_message_that_ends_a_program_is_told_in_its_own_words(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, "starting\n" + line + "\n")

    assert verdict.code not in ("SL498", "SL499")
    assert SAID[line] in verdict.summary


def test_what_a_job_did_without_is_no_failure(tmp_path: Path) -> None:
    steps = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(8))
    verdict = judged(tmp_path, "WARNING: No module named 'flash_attn', falling back to torch\n" + steps)

    assert verdict.code in ("SL498", "SL499")
    assert "failed" not in verdict.summary


QUIET = (
    "WARNING 01-01 10:00:00 [interface.py:221] Failed to import with ImportError('libx.so.1: cannot open shared object file: No such file')",
    "WARNING: PermissionError: [Errno 13] Permission denied: '/root/.cache/x', using a temporary folder",
    "WARNING: CUDA out of memory on batch 12, trying half of it",
    "2031-01-01 10:00:00,000 - root - WARNING - optional package: No module named 'flash_attn_3'",
)


@pytest.mark.parametrize("line", QUIET)
def test_a_job_that_says_that_it_ended_well_has_overcome_what_was_said_before(tmp_path: Path, line: str) -> None:
    steps = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(8))

    assert judged(tmp_path, line + "\n" + steps + "Training completed.\n").code == "SL498"


def test_lines_that_the_first_one_of_a_message_announces_stand_in_the_headline(tmp_path: Path) -> None:
    error = "RuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for lm_head.weight: shapes differ"
    verdict = judged(tmp_path, rank(0, traceback(error, MAIN)))

    assert "size mismatch for lm_head.weight" in verdict.summary


def test_the_number_of_an_error_stands_in_the_headline_however_late_it_is_told(tmp_path: Path) -> None:
    error = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
    verdict = judged(tmp_path, traceback(error, MAIN))

    assert "Error 802: system not yet initialized" in verdict.summary


def test_what_is_within_a_group_of_exceptions_is_why_it_was_raised(tmp_path: Path) -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/srv/train.py", line 12, in <module>\n  |     run()\n'
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/srv/train.py", line 8, in work\n    |     load()\n'
        "    | ValueError: bad shard 7\n    +------------------------------------\n"
    )
    verdict = judged(tmp_path, text)

    assert "ValueError: bad shard 7" in verdict.summary
    assert verdict.location is not None
    assert verdict.location.line == 8


def test_an_exception_of_a_module_is_one_however_its_name_ends(tmp_path: Path) -> None:
    error = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224"
    verdict = judged(tmp_path, traceback(error, MAIN))

    assert "OutOfResources: out of resource" in verdict.summary


def test_a_fault_of_the_driver_names_the_gpu_of_the_line_before_it(tmp_path: Path) -> None:
    text = "[ 18.30] NVRM: The NVIDIA GPU 0000:b3:00.0\n  NVRM: (PCI ID: 10de:26b5) installed in this system has\n  NVRM: fallen off the bus and is not responding to commands.\n"

    assert "0000:b3:00.0" in judged(tmp_path, text).summary


def test_a_death_of_a_signal_has_the_fatal_words_before_it(tmp_path: Path) -> None:
    text = "Abort(109) on node 0: Fatal error in PMPI_Init_thread: Unknown error class\nE0102 10:00:00.1 47 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -11) local_rank: 2 (pid: 71) of binary: /usr/bin/python\n"
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL405"
    assert "Fatal error in PMPI_Init_thread" in verdict.summary
    assert "local rank 2" in verdict.summary


def test_newer_words_of_a_lost_link_are_understood(tmp_path: Path) -> None:
    line = "n1:100:200 [2] net_ib.cc:2400 NCCL WARN NET/IB: Got completion from peer 10.1.1.4<51000> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1)\n"
    verdict = judged(tmp_path, line)

    assert verdict.code == "SL412"
    assert "10.1.1.4" in verdict.summary


STORES = {
    "The client socket has timed out after 120000ms while trying to connect to (nccl-master, 29500).": "nccl-master:29500 within 120 s",
    "The client socket has failed to connect to any network address of (node-1, 29500). The client socket has failed to connect to 10.0.0.3:29500 (errno: 113 - No route to host).": "node-1:29500: No route to host",
    "The client socket has failed to connect to any network address of (node-1, 29500). The IPv6 network addresses of (node-1, 29500) cannot be retrieved (gai error: -2 - Name or service not known).": "node-1:29500: Name or service not known",
}


@pytest.mark.parametrize("said", STORES)
def test_a_store_that_is_not_reached_is_named_with_the_reason(tmp_path: Path, said: str) -> None:
    verdict = judged(tmp_path, rank(1, traceback(f"torch.distributed.DistNetworkError: {said}", MAIN)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL602", ())
    assert STORES[said] in verdict.summary


MISFIT = (
    "size mismatch for decoder.layers.{}.weight: copying a param with shape torch.Size([512, 64]) from checkpoint, "
    "the shape in current model is torch.Size([1024, 64]).\n"
)


def test_a_checkpoint_that_does_not_fit_is_told_by_its_shapes_alone(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "".join(f"[rank1]:    {MISFIT.format(n)}" for n in range(4)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (1,))
    assert verdict.summary.startswith("rank 1: the checkpoint does not fit the model: decoder.layers.0.weight")
    assert "another model" in verdict.remedy


def test_a_weight_that_was_left_out_is_no_failure_of_a_job_that_made_steps(tmp_path: Path) -> None:
    steps = "".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(20))

    assert judged(tmp_path, f"{MISFIT.format(3)}{steps}").code == "SL498"


@pytest.mark.parametrize("mark", ["", "[rank2]: "])
def test_an_error_that_lists_what_all_ranks_brought_is_nobodys_own(tmp_path: Path, mark: str) -> None:
    inputs = "".join(f"  - Process {n}: [4, {128 if n % 2 else 64 + n}, 32]\n" for n in range(8))
    error = (
        "acc.ops.OperationException: Cannot apply it due to shape mismatches.\n\n"
        f"Operation: `acc.ops.gather`\nInput shapes:\n{inputs}"
    )
    lines = traceback(error.rstrip(), MAIN).splitlines()
    verdict = judged(tmp_path, "".join(f"{mark}{line}\n" for line in lines))

    assert (verdict.code, verdict.culprit_ranks) == ("SL410", ())
    assert "different shapes to gather" in verdict.summary
    assert "[4, 128, 32] on ranks 1, 3, 5 and 7" in verdict.summary
    assert "they differ in dimension 1" in verdict.summary
    assert verdict.remedy.startswith("pad dimension 1")
    assert "Process 7" in verdict.traceback


STEP_FAILED = "RuntimeError: comms: pool.cpp:134 start: EXCEPTION: failed to start worker # 0"
LIBRARY = "2026:01:04-10:00:0{}:(77) |COMMS_ERROR| pool.cpp:{} run: {}\n"


@pytest.mark.parametrize(
    ("call", "name", "advice"),
    [("pthread_create returns 22", "EINVAL", "affinity"), ("pthread_create returned 11", "EAGAIN", "ulimit -u")],
)
def test_the_error_of_a_library_just_before_leads_over_a_step_that_failed(
    tmp_path: Path, call: str, name: str, advice: str
) -> None:
    before = LIBRARY.format(1, 36, f"no thread #0: {call}") + LIBRARY.format(2, 99, "condition worker->start() failed")
    verdict = judged(tmp_path, before + STEP_FAILED + "\n")

    assert verdict.code == "SL401"
    assert f"no thread #0: {call} ({name}: " in verdict.summary
    assert "failed to start" in verdict.summary
    assert advice in verdict.remedy.lower()


def test_an_error_in_words_just_before_leads_as_well(tmp_path: Path) -> None:
    before = "[1700.1] [node:77:0] device.c:12 FABRIC ERROR create_queue(4096) failed: Cannot allocate memory\n"
    verdict = judged(tmp_path, before + "RuntimeError: Failed to create fabric worker\n")

    assert "create_queue(4096) failed: Cannot allocate memory" in verdict.summary


def test_an_error_far_before_or_of_another_process_is_not_why_a_step_failed(tmp_path: Path) -> None:
    said = LIBRARY.format(1, 36, "no thread #0: pthread_create returns 22")
    far = said + "loading a shard\n" * 30 + STEP_FAILED + "\n"
    other = f"(Worker pid=5) {said}(Worker pid=6) {STEP_FAILED}\n"

    assert "EINVAL" not in judged(tmp_path, far).summary
    assert "EINVAL" not in judged(tmp_path, other).summary
