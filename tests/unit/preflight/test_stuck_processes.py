from __future__ import annotations

import os
from pathlib import Path

from fake_host import FakeHost, only, write

from safelaunch.preflight.node.stuck import stuck

KERNEL_THREAD = 0x00208040


def process(
    pid: int, state: str = "D", *, steps: int = 7, where: str = "nfs_wait_on_request", parent: int = 1, flags: int = 0
) -> dict[str, str]:
    """A process as /proc shows it; fields of stat that nobody reads are 0."""
    stat = f"{pid} (cp (2)) {state} {parent} 0 0 0 0 {flags} " + "0 " * 12 + "500" + " 0" * 30
    return {
        f"/proc/{pid}/stat": stat + "\n",
        f"/proc/{pid}/status": f"Uid:\t0\t0\t0\t0\nvoluntary_ctxt_switches:\t{steps}\n",
        f"/proc/{pid}/cmdline": "cp\0-r\0/mnt/data\0.\0",
        f"/proc/{pid}/wchan": where,
        "/proc/uptime": "1000.00 1.0\n",
    }


def test_a_process_that_takes_no_step_is_named_with_what_it_waits_for(tmp_path: Path) -> None:
    write(tmp_path, {**process(40), **process(41, "S")})
    host = FakeHost(tmp_path)
    finding = only(stuck(host))
    assert finding.severity == "warning"
    assert "a process is stuck in the kernel" in finding.summary
    assert finding.because == ("pid 40 (root, 16 min old): cp -r /mnt/data . (in nfs_wait_on_request)",)
    assert 3.0 <= host.clock < 4.0


def test_a_node_where_nothing_sleeps_is_looked_at_once(tmp_path: Path) -> None:
    write(tmp_path, process(41, "S"))
    host = FakeHost(tmp_path)
    assert only(stuck(host)).severity == "ok"
    assert host.clock == 0.0


def test_ordinary_input_and_output_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, process(40))
    reads = FakeHost(tmp_path, asleep=lambda: write(tmp_path, process(40, steps=8)))
    assert only(stuck(reads)).severity == "ok"
    write(tmp_path, process(40))
    wakes = FakeHost(tmp_path, asleep=lambda: write(tmp_path, process(40, "R")))
    assert only(stuck(wakes)).severity == "ok"
    assert wakes.clock < 1.0


def test_who_sleeps_so_by_design_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {**process(2, flags=KERNEL_THREAD), **process(50, where="__refrigerator")})
    write(tmp_path, {**process(51, where="wait_for_vfork_done"), **process(52, parent=os.getpid())})
    assert only(stuck(FakeHost(tmp_path))).severity == "ok"


def test_a_mass_of_zombies_is_a_warning_and_their_parent_is_named(tmp_path: Path) -> None:
    write(tmp_path, process(40, "S"))
    for pid in range(1000, 1999):
        (tmp_path / f"proc/{pid}").mkdir()
        (tmp_path / f"proc/{pid}/stat").write_text(f"{pid} (x) Z 40 0\n")
    assert only(stuck(FakeHost(tmp_path))).severity == "ok"
    write(tmp_path, {"/proc/2000/stat": "2000 (x) Z 40 0\n"})
    finding = only(stuck(FakeHost(tmp_path)))
    assert finding.severity == "warning"
    assert "1000 zombies" in finding.summary
    assert "1000 of them are children of pid 40 (root" in finding.because[0]
