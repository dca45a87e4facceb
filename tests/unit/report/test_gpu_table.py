"""The table of GPUs on the page: what a reader sees of each, and that no command line becomes markup."""

from __future__ import annotations

import dataclasses

from safelaunch.model import Case, GpuState, Incident, NetworkPort, Tenant, Verdict
from safelaunch.report.page import gpus

GIB = 1 << 30
CASE = Case(Incident("hang", 0, (), 1.0), "node-a", 2, ())
VERDICT = Verdict(code="SL428", slug="gpu-fault", kind="hang", summary="", culprit_ranks=(1,))


def shown(*states: GpuState, **more: object) -> str:
    return str(gpus.section(dataclasses.replace(CASE, gpus=states, **more), VERDICT) or "")  # type: ignore[arg-type]


def test_nothing_without_gpus() -> None:
    assert shown() == ""


def test_a_row_for_each_gpu_with_what_is_known() -> None:
    one = GpuState(0, name="H100", ranks=(0,), memory_total=80 * GIB, memory_used=12 * GIB, busy_percent=100)
    other = GpuState(
        1,
        ranks=(1,),
        lost=True,
        missing="GPU is lost",
        xids=("[5.0] NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus.",),
        tenants=(Tenant(77, None, 3 * GIB, "python <b>serve.py</b>"),),
    )
    page = shown(one, other)
    assert "12.0 of 80.0 GiB" in page
    assert "100 %" in page
    assert "79, GPU has fallen off the bus." in page
    assert 'class="culprit"' in page.partition("100 %")[2]
    assert 'class="culprit"' not in page.partition("100 %")[0]
    assert "pid 77 python &lt;b&gt;serve.py&lt;/b&gt; 3.0 GiB" in page
    assert "NVLinks" not in page  # nothing is known of them: no column


def test_ports_and_the_words_of_nccl() -> None:
    page = shown(ports_down=(NetworkPort("mlx5_2:1", "DOWN", "Polling"),), ras="Job summary\n<script>")
    assert "mlx5_2:1 (DOWN, Polling)" in page
    assert "Job summary\n&lt;script&gt;" in page
    assert "<table>" not in page
