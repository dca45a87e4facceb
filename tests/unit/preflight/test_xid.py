from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost, gpus, only, write

from safelaunch.model import Finding, Job
from safelaunch.preflight.gpu.kernel_messages import xid
from safelaunch.preflight.machine.nvml import Gpu, Snapshot
from safelaunch.preflight.machine.root import Root

UPTIME_S = 100_000
GPU_JOB = Job(nproc=8, uses_gpu=True)


def node(action: int | None) -> Snapshot:
    """Eight GPUs whose driver says this recovery action, or none at all."""
    known = {gpu.index: gpu for gpu in gpus(8).gpus}
    return gpus(
        8,
        **{
            f"g{i}": Gpu(i, gpu.uuid, gpu.name, address=gpu.address, recovery_action=action) for i, gpu in known.items()
        },
    )


def record(text: str, age_s: float = 600.0) -> str:
    """A line as /dev/kmsg hands it out."""
    return f"4,1000,{int((UPTIME_S - age_s) * 1e6)},-;{text}\n"


def about(gpu: int, message: str) -> str:
    return f"NVRM: Xid (PCI:0000:{0x10 + gpu:02x}:00): {message}"


def look(tmp_path: Path, *records: str, action: int | None = None, job: Job = GPU_JOB) -> list[Finding]:
    write(tmp_path, {"/dev/kmsg": "".join(records), "/proc/uptime": f"{UPTIME_S}.00 1.0\n"})
    return list(xid(FakeHost(tmp_path, job, snapshot=node(action))))


def test_a_quiet_log(tmp_path: Path) -> None:
    lines = (record("Linux version 6.1"), " SUBSYSTEM=pci\n", record("NVRM: loading NVIDIA UNIX Open Kernel Module"))
    assert [finding.severity for finding in look(tmp_path, *lines)] == ["ok"]


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "error"),
        ("46, GPU stopped processing", "error"),
        ("95, pid=77, Uncontained memory error", "error"),
        ("119, pid=77, name=python, Timeout waiting for RPC from GSP0!", "error"),
        ("48, An uncorrectable double bit error (DBE) has been detected", "error"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)", "error"),
        ("145, RLW_REMAP Nonfatal XC1 i0 Link 04 (0x00000004 0x00000000)", "warning"),
        ("31, pid=77, name=python, Ch 00000008, MMU Fault", "warning"),
        ("63, Row Remapper: New row marked for remapping, reset gpu to activate.", "warning"),
        ("94, pid=77, Contained memory error", "warning"),
    ],
)
def test_the_action_of_nvidia_decides(tmp_path: Path, message: str, severity: str) -> None:
    (finding,) = look(tmp_path, record(about(3, message)))
    assert (finding.code, finding.severity) == ("SL120", severity)
    assert finding.summary.startswith(f"GPU 3: Xid {message.partition(',')[0]}")
    assert finding.summary.endswith("10 min ago")
    assert finding.where == "GPU 3 (GPU-00000003, 0000:13:00.0)"
    assert message in finding.because[0]
    assert "admin" in finding.remedy


def test_an_old_fault_of_a_program_is_a_note(tmp_path: Path) -> None:
    assert look(tmp_path, record(about(3, "31, pid=77, MMU Fault"), age_s=8000))[0].severity == "note"


@pytest.mark.parametrize("number", [46, 48, 74, 79, 109, 119, 140])
@pytest.mark.parametrize("action", [None, 0])
def test_an_error_that_a_reset_ends_is_a_warning_when_it_is_old(
    tmp_path: Path, number: int, action: int | None
) -> None:
    """A reset leaves no line in the log, and drivers before 570 do not tell the recovery action."""
    (finding,) = look(tmp_path, record(about(3, f"{number}, Timeout"), age_s=8000), action=action)
    assert finding.severity == "warning"
    assert "recovery action" in finding.because[1]
    if action is None:
        assert finding.because[1] == (
            "it is more than 2 h old, and of recovery actions the driver does not tell whether one is due"
        )
        assert finding.remedy.startswith("have an admin re")
        assert "unless that was done since" in finding.remedy


def test_a_recovery_action_that_is_due_keeps_an_old_error(tmp_path: Path) -> None:
    line = record(about(3, "119, Timeout"), age_s=8000)
    assert look(tmp_path, line, action=1)[0].severity == "error"
    assert look(tmp_path, line, action=0)[0].severity == "warning"


def test_each_gpu_has_its_own_age(tmp_path: Path) -> None:
    lines = (record(about(2, "119, Timeout"), age_s=8000), record(about(5, "119, Timeout"), age_s=60))
    found = {finding.summary[:5]: finding for finding in look(tmp_path, *lines)}
    assert {gpu: finding.severity for gpu, finding in found.items()} == {"GPU 2": "warning", "GPU 5": "error"}
    assert "--gpu-reset -i 5" in found["GPU 5"].remedy
    assert "2 h old" in found["GPU 5"].remedy


def test_several_gpus_and_times_are_one_finding(tmp_path: Path) -> None:
    lines = [record(about(gpu, "31, pid=77, MMU Fault"), age_s=300 + gpu) for gpu in (1, 2, 2)]
    (finding,) = look(tmp_path, *lines)
    assert finding.summary == (
        "GPUs 1-2: Xid 31 (a program read or wrote a wrong address), 3 times, the last time 5 min ago"
    )


def test_only_gpus_of_the_job_and_only_since_the_driver_was_loaded(tmp_path: Path) -> None:
    other = record("NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.")
    before = record(about(3, "79, GPU has fallen off the bus."), age_s=900)
    loaded = record("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06", age_s=800)
    assert look(tmp_path, other, before, loaded)[0].severity == "ok"
    unused = record(about(7, "79, GPU has fallen off the bus."))
    assert look(tmp_path, unused, job=Job(nproc=2, uses_gpu=True))[0].severity == "ok"
    assert look(tmp_path, unused, job=Job(nproc=2))[0].summary == "the job does not use GPUs"


def test_the_driver_that_sets_a_recovery_action_knows_whether_it_is_over(tmp_path: Path) -> None:
    line = record(about(3, "79, GPU has fallen off the bus."))
    assert look(tmp_path, line, action=0)[0].severity == "warning"
    due = look(tmp_path, line, action=2)[0]
    assert (due.severity, "SL112" in due.because[1]) == ("note", True)
    assert look(tmp_path, record(about(3, "119, Timeout")), action=0)[0].severity == "error"  # it sets none for this


def test_a_gpu_off_the_bus_without_an_xid(tmp_path: Path) -> None:
    text = "NVRM: The NVIDIA GPU 0000:14:00.0 (PCI ID: 10de:2330) has fallen off the bus and is not responding."
    assert look(tmp_path, record(text))[0].summary.startswith("GPU 4: Xid 79 (the GPU fell off the bus)")


def test_mig_and_old_forms_of_the_line(tmp_path: Path) -> None:
    mig = record("NVRM: Xid (PCI:0000:13:00 GPU-I:05): 119, pid=1, Timeout")
    old = record("NVRM: Xid (0000:14:00): 46, GPU stopped processing")
    assert [finding.summary[:14] for finding in look(tmp_path, mig, old)] == ["GPU 4: Xid 46 ", "GPU 3: Xid 119"]


def test_news_of_the_recovery_action_is_left_to_its_check(tmp_path: Path) -> None:
    line = record(about(3, "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"))
    assert look(tmp_path, line)[0].severity == "ok"


def unreadable(tmp_path: Path, action: int | None, **programs: str) -> Finding:
    write(tmp_path, {"/proc/uptime": f"{UPTIME_S}.00 1.0\n"})
    return only(xid(FakeHost(tmp_path, GPU_JOB, snapshot=node(action), programs=programs)))


def test_a_log_that_may_not_be_read(tmp_path: Path) -> None:
    stand_in = unreadable(tmp_path, 0)
    assert (stand_in.severity, "recovery action was looked at instead" in stand_in.summary) == ("ok", True)
    nothing = unreadable(tmp_path, None)
    assert nothing.severity == "unchecked"
    assert "/dev/kmsg: No such file or directory" in nothing.because[0]


@pytest.mark.parametrize("content", ["", "a console\nand not a kernel\n"])
def test_a_false_kernel_log_is_no_quiet_one(tmp_path: Path, content: str) -> None:
    """Containers have /dev/null or a console in the place of /dev/kmsg."""
    write(tmp_path, {"/dev/kmsg": content})
    finding = unreadable(tmp_path, None)
    assert finding.severity == "unchecked"
    assert finding.because == ("the kernel log may not be read: /dev/kmsg: it holds no messages of the kernel",)
    told = unreadable(tmp_path, None, dmesg=f"[{UPTIME_S - 70}.1] {about(3, '46, stopped')}\n")
    assert told.summary.startswith("GPU 3: Xid 46")


def test_dmesg_and_the_journal_stand_in_for_kmsg(tmp_path: Path) -> None:
    at = f"[{UPTIME_S - 70}.123456]"
    assert unreadable(tmp_path, None, dmesg=f"{at} {about(3, '46, stopped')}\n").severity == "error"
    journal = f"{at} node-a kernel: {about(3, '46, stopped')}\n"
    assert unreadable(tmp_path, None, dmesg="", journalctl=journal).summary.endswith("1 min ago")
    assert unreadable(tmp_path, None, journalctl="-- No entries --\n").severity == "unchecked"


def test_what_a_character_device_holds_is_read_without_waiting_for_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x" * 100_000)
    assert len(Root(str(tmp_path)).read_available("/file")) == 100_000
    assert Root().read_available("/dev/null") == ""


@pytest.mark.parametrize(
    "text",
    [
        "process 'tmp/x/{}' started with executable stack",
        "cgroup: fork rejected by pids controller in /user.slice/{}",
        "Memory cgroup stats for /a/{}: cache:0KB",
    ],
)
def test_a_name_that_a_user_has_chosen_is_no_message_of_the_driver(tmp_path: Path, text: str) -> None:
    fallen = "NVRM: Xid (PCI:0000:10:00): 79, pid=1, GPU has fallen off the bus."
    assert [finding.severity for finding in look(tmp_path, record(text.format(fallen)))] == ["ok"]

    loaded = text.format("NVRM: loading NVIDIA UNIX")
    found = only(look(tmp_path, record(about(0, "79, GPU has fallen off the bus."), 900.0), record(loaded, 600.0)))
    assert found.severity == "error"
