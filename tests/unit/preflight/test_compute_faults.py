"""Devices that do not come through, and devices that compute wrongly: who is named."""

from __future__ import annotations

from devices import gpu, node, rank
from fake_host import only

from safelaunch.model import Finding
from safelaunch.preflight.active.compute_faults import broken, corrupt
from safelaunch.preflight.active.compute_report import Device


def told(*devices: Device) -> list[Finding]:
    return list(broken(devices, 30.0))


def test_healthy_devices() -> None:
    assert only(broken(node(), 30.0)).summary == "8 GPUs computed what was asked"
    assert only(corrupt(node())).summary == "8 GPUs computed the same product 64 times"
    assert only(corrupt([gpu(0)])).summary.endswith("with no peer to compare with")


def test_a_gpu_that_hangs_is_named_in_full_with_a_remedy() -> None:
    finding = only(broken(node(g3=gpu(3, entered=2, left=1)), 30.0))
    assert (finding.severity, finding.summary) == ("error", "GPU 3 did not finish the GEMM within 30 s")
    assert finding.where == "GPU 3 (GPU-00000003, 0000:03:00.0)"
    assert "CUDA_VISIBLE_DEVICES" in finding.remedy


def test_a_gpu_that_fails_is_told_with_its_words() -> None:
    text = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    (finding,) = told(gpu(0), gpu(1, entered=1, left=0, failed_s=1.0, error=text))
    assert finding.summary == "GPU 1 failed in the first kernel"
    assert finding.because[0] == text


def test_a_silent_death_is_told_with_the_last_words() -> None:
    (finding,) = told(gpu(0), gpu(1, entered=2, left=1, failed_s=1.0, exit_code=-6, last_words="CUDA error 719"))
    assert finding.summary == "GPU 1 died with signal 6 in the GEMM"
    assert finding.because[0] == "CUDA error 719"


def test_what_is_wrong_with_all_is_one_fault_with_its_remedy() -> None:
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    (finding,) = told(*(gpu(index, entered=1, left=0, failed_s=1.0, error=error) for index in range(8)))
    assert finding.summary == "all 8 GPUs failed in the first kernel"
    assert finding.remedy == "install a build of torch that supports this GPU"


def test_a_gpu_without_memory_left_could_not_be_looked_at() -> None:
    error = "OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB."
    (finding,) = told(gpu(0), gpu(1, entered=2, left=1, failed_s=1.0, error=error))
    assert finding.severity == "unchecked"


def test_a_rank_on_the_cpu_that_hangs() -> None:
    (finding,) = told(rank(0), rank(1, entered=1, left=1))
    assert finding.summary == "rank 1 did not reach the GEMM within 30 s"
    assert "reset" not in finding.remedy


def test_the_minority_is_named() -> None:
    finding = only(corrupt(node(g5=gpu(5, hashes=("b",) * 8))))
    assert (finding.severity, finding.summary) == ("error", "GPU 5 computed a wrong result")
    assert finding.where == "GPU 5 (GPU-00000005, 0000:05:00.0)"
    assert "7 of 8 GPUs" in finding.because[0]


def test_each_of_a_minority_is_named_even_if_they_differ_among_themselves() -> None:
    findings = list(corrupt(node(g5=gpu(5, hashes=("b",) * 8), g6=gpu(6, hashes=("c",) * 8))))
    assert [finding.summary[:5] for finding in findings] == ["GPU 5", "GPU 6"]


def test_of_two_that_differ_none_is_named() -> None:
    finding = only(corrupt([gpu(0), gpu(1, hashes=("b",) * 8)]))
    assert finding.severity == "error"
    assert finding.summary == "GPU 0 and GPU 1 computed different results: cannot tell which of the two is wrong"


def test_without_a_majority_none_is_named() -> None:
    finding = only(corrupt([gpu(0), gpu(1), gpu(2, hashes=("b",)), gpu(3, hashes=("b",))]))
    assert finding.summary == "4 GPUs computed 2 different results, none by most of them: cannot tell which is wrong"
    assert finding.because[0].endswith("GPU 0, GPU 1 | GPU 2, GPU 3")


def test_three_parties_without_a_majority_are_all_listed() -> None:
    finding = only(corrupt([gpu(0), gpu(1, hashes=("b",)), gpu(2, hashes=("c",))]))
    assert finding.because[0].endswith("GPU 0 | GPU 1 | GPU 2")


def test_a_gpu_that_disagrees_with_itself_is_wrong_for_certain() -> None:
    finding = only(corrupt([gpu(0), gpu(1, hashes=("a",) * 7 + ("b",))]))
    assert finding.summary == "GPU 1 computed different results from the same numbers"
    assert finding.because[0].startswith("1 of 8 times")
    assert only(corrupt([gpu(0, hashes=("a", "b"))])).severity == "error"


def test_devices_that_never_got_there_have_no_vote() -> None:
    silent = gpu(0, entered=1, left=0, hashes=())
    assert only(corrupt([silent, gpu(1), gpu(2)])).severity == "ok"
    assert only(corrupt([silent])).severity == "unchecked"


def test_a_rank_on_the_cpu_that_computes_wrongly() -> None:
    finding = only(corrupt([rank(0), rank(1), rank(2, hashes=("b",))]))
    assert (finding.severity, finding.where) == ("error", "rank 2 on the CPU")
    assert "CUDA" not in finding.remedy
