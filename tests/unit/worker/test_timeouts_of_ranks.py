"""Default timeouts of process groups and DataLoaders in a rank, and what the rank tells of those in force."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_ranks import run

from safelaunch.evidence.announcements import read
from safelaunch.worker.timeouts import set_group_default

GROUPS = """
import datetime
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
def seconds(group):
    return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
def passed(number):
    return datetime.timedelta(seconds=number)
if MESH:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    say(seconds=[seconds(dist.group.WORLD), seconds(mesh["a"].get_group()), seconds(mesh["b"].get_group())])
else:
    dist.init_process_group("gloo", timeout=None)
    found = [dist.group.WORLD, dist.new_group([0]), dist.new_group([0], timeout=passed(42))]
    change = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout  # torch 2.15
    change(passed(3))
    change(passed(4), found[1])
    say(seconds=[*map(seconds, found)])
    dist.destroy_process_group()
    dist.init_process_group("gloo", None, passed(43))
    say(again=seconds(dist.group.WORLD))
dist.destroy_process_group()
"""


def remarks(tmp_path: Path, pid: int) -> list[dict[str, Any]]:
    found, _ = read(str(tmp_path / "black_box"), 0, pid)
    return found


def test_the_default_is_for_groups_without_a_timeout_of_their_own(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "MESH = False\n" + GROUPS, SAFELAUNCH_PG_TIMEOUT="7.5")

    assert (rank.code, rank.err) == (0, "")
    # 3 and 4 were set later, by the script.
    assert rank.said == {"seconds": [3.0, 4.0, 42.0], "again": 43.0}
    told = [(entry["seconds"], entry["backend"], entry["explicit"]) for entry in remarks(tmp_path, rank.pid)]
    assert told == [(7.5, "gloo", False), (3.0, "", True), (43.0, "gloo", True)]
    first = remarks(tmp_path, rank.pid)[0]
    script = (tmp_path / "script.py").read_text().splitlines()
    assert first["file"].endswith("script.py")
    assert script[first["line"] - 1].strip() == 'dist.init_process_group("gloo", timeout=None)'


FORMER = """
import datetime, warnings
import torch.distributed as dist
dist.init_process_group("gloo")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=3))
say(warned=[warning.filename for warning in caught], script=__file__)
dist.destroy_process_group()
"""


def test_torchs_warning_about_the_former_name_is_the_scripts_own(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, FORMER)

    assert (rank.code, rank.err) == (0, "")
    assert set(rank.said["warned"]) <= {rank.said["script"]}
    assert [entry["seconds"] for entry in remarks(tmp_path, rank.pid)][1:] == [3.0]


def test_the_default_reaches_a_device_mesh(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "MESH = True\n" + GROUPS, SAFELAUNCH_PG_TIMEOUT="7")

    assert (rank.code, rank.said["seconds"]) == (0, [7.0, 7.0, 7.0]), rank.err
    assert [entry["seconds"] for entry in remarks(tmp_path, rank.pid)] == [7.0]


def test_without_a_profiles_word_torchs_own_default_is_told(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "MESH = True\n" + GROUPS)

    assert rank.said["seconds"] == [1800.0] * 3
    assert [(entry["seconds"], entry["explicit"]) for entry in remarks(tmp_path, rank.pid)] == [(1800.0, False)]


def test_the_constant_of_nccl_is_set_where_torch_has_it() -> None:
    ten, thirty = datetime.timedelta(minutes=10), datetime.timedelta(minutes=30)
    with_nccl = SimpleNamespace(default_pg_timeout=thirty, default_pg_nccl_timeout=ten)
    without = SimpleNamespace(default_pg_timeout=thirty, default_pg_nccl_timeout=None)

    set_group_default(with_nccl, 7.0)
    set_group_default(without, 7.0)

    seven = datetime.timedelta(seconds=7)
    assert (with_nccl.default_pg_timeout, with_nccl.default_pg_nccl_timeout) == (seven, seven)
    assert (without.default_pg_timeout, without.default_pg_nccl_timeout) == (seven, None)


LOADERS = """
from torch.utils.data import DataLoader, IterableDataset
class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(3))
def look(**options):
    loader = DataLoader(options.pop("dataset", range(3)), batch_size=None, **options)
    iterator = iter(loader)
    return [iterator._timeout, loader.timeout, sum(1 for _ in iterator)]
if __name__ == "__main__":
    say(default=look(num_workers=1), zero=look(num_workers=2, timeout=0), own=look(num_workers=1, timeout=50),
        alone=look(), kept=look(num_workers=1, persistent_workers=True), endless=look(dataset=Endless(), num_workers=1))
"""


def test_loaders_with_workers_get_the_default_and_nobody_else(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, LOADERS, SAFELAUNCH_LOADER_TIMEOUT="30.0")

    assert (rank.code, rank.err) == (0, "")
    assert rank.said == {
        "default": [30, 0, 3],
        "zero": [30, 0, 3],
        "own": [50, 50, 3],
        "alone": [0, 0, 3],
        "kept": [30, 0, 3],
        "endless": [30, 0, 3],
    }
    told = {(entry["seconds"], entry["explicit"]) for entry in remarks(tmp_path, rank.pid)}
    assert told == {(30.0, False), (50.0, True)}


def test_without_a_default_loaders_are_as_torch_has_them(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, LOADERS)

    assert (rank.code, rank.err) == (0, "")
    assert {name: seen[0] for name, seen in rank.said.items()} == dict.fromkeys(rank.said, 0) | {"own": 50}
    assert [(entry["seconds"], entry["explicit"]) for entry in remarks(tmp_path, rank.pid)] == [(50.0, True)]


OTHERS = """
import torch.utils.data.dataloader as module, torch.distributed as dist
class Newer:
    def __init__(self):
        self.timeout = 1
for name in ("set_timeout", "_set_pg_timeout"):
    vars(dist.distributed_c10d).pop(name, None)
from safelaunch.worker.announcements import Remarks
from safelaunch.worker import timeouts
module._BaseDataLoaderIter = Newer
timeouts.watch_loaders(module, 5.0, None)
print(module._BaseDataLoaderIter().timeout)
timeouts.remark_on_groups(dist.distributed_c10d, None)
try:
    dist.distributed_c10d.init_process_group("no-such-backend")
except Exception as error:
    print("torch's own words:", error)
"""


def test_a_torch_that_has_it_otherwise_is_told_of_and_goes_on(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, OTHERS)

    assert rank.code == 0, rank.err
    assert rank.out.startswith("1\ntorch's own words:")
    assert "announcements" not in rank.out
    assert rank.err.count("warning[SL902]") == 2  # one for each part that is off


@pytest.mark.parametrize("text", ["", "no json\n", '{"pid": 7, "kind": "gr', "[]\n", '{"pid": 8, "kind": "group"}\n'])
def test_remarks_that_are_torn_or_of_another_process_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "box.0.announcements").write_text(text)
    found, offset = read(str(tmp_path / "box"), 0, 7)

    assert found == []
    rest = json.dumps({"pid": 7, "kind": "group"})
    (tmp_path / "box.0.announcements").write_text(text[:offset] + rest + "\n")
    assert read(str(tmp_path / "box"), 0, 7, offset)[0] == [{"pid": 7, "kind": "group"}]
