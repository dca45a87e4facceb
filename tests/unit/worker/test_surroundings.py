"""What a rank records beside its exception: descriptors, disks, /dev/shm, ports, and parameters without a gradient."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from ranks import rank_environment, run
from torch_ranks import GLOO
from torch_ranks import run as run_ranks

from safelaunch.codec import from_json
from safelaunch.model import PyError, Surroundings
from safelaunch.worker import surroundings

# How the supervisor asks a rank for what it has to say of itself, and the answer.
ASK = """
def ask():
    reader = black_box_reader.Reader(PLACE[0])
    reader.ask(PLACE[1])
    asked = reader.pulse(PLACE[1], os.getpid()).asked
    until(lambda: reader.pulse(PLACE[1], os.getpid()).answered >= asked)
def word():
    return json.load(open(black_box.beside(*PLACE, "self_report")))
"""


def around(tmp_path: Path, source: str) -> Surroundings:
    found = from_json(PyError, run(tmp_path, source).error).around
    assert found is not None
    return found


def test_most_exceptions_have_none(tmp_path: Path) -> None:
    assert "around" not in run(tmp_path, "raise ValueError('loss is nan')").error


def test_too_many_open_files_are_recorded_with_the_last_descriptor(tmp_path: Path) -> None:
    source = """
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = [socket.socket() for _ in range(5)]
while True:
    kept.append(open("shard-%d.bin" % len(kept), "w"))
"""
    found = around(tmp_path, source).open_files

    assert found is not None
    assert found.limit == 64
    assert found.count >= 60
    assert found.kinds[0].name == f"{tmp_path}/shard-*.bin"
    assert {"sockets"} <= {share.name for share in found.kinds}


def test_a_port_and_its_holder(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        source = f"import socket\nPORT = {port}\nserver = socket.socket()\nserver.bind(('127.0.0.1', PORT))\n"
        found = around(tmp_path, source).port

    assert found is not None
    assert (found.number, found.held, found.pid) == (port, True, os.getpid())
    assert found.command.startswith("python")


@pytest.mark.parametrize("bind", ["server.bind(address())", "server.bind(('127.0.0.1', port + 0))"])
def test_a_port_that_the_line_does_not_say_is_not_guessed(tmp_path: Path, bind: str) -> None:
    source = f"""
import socket
port = 1
first, server = socket.socket(), socket.socket()
first.bind(("127.0.0.1", 0)); first.listen()
def address(): return first.getsockname()
port = first.getsockname()[1]
{bind}
"""
    assert run(tmp_path, source).error.get("around") is None


def test_memory_and_the_limit_that_leaves_no_room_for_a_thread(tmp_path: Path) -> None:
    source = """
import resource
with open("/proc/self/statm") as file:
    limit = (int(file.read().split()[0]) << 12) + (80 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
kept = []
while True:
    kept.append(bytearray(1 << 20))  # what is left is less than a thread's stack
"""
    found = around(tmp_path, source).memory

    assert found is not None
    assert found.limit is not None
    assert found.mapped > 0.9 * found.limit
    assert 0 < found.resident <= found.mapped


def on_small_disk(tmp_path: Path, source: str, size: str = "1m", at: str = "disk") -> PyError:
    """Run a rank in a mount namespace of its own, with a small file system."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root")
    import json
    import sys

    (tmp_path / "disk").mkdir()
    script = tmp_path / "script.py"
    script.write_text(source)
    target = tmp_path / "disk" if at == "disk" else Path(at)
    command = f"mount -t tmpfs -o size={size} none {target} && exec {sys.executable} {script}"
    env = rank_environment(tmp_path)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    records = list((tmp_path / "rank_000").glob("error-*.json")) + list(tmp_path.glob("black_box.0.error-*.json"))
    if not records and "mount" in done.stderr:
        pytest.skip(done.stderr.strip())
    return from_json(PyError, json.loads(records[0].read_text()))


def test_a_full_disk_and_what_was_written_there(tmp_path: Path) -> None:
    error = on_small_disk(
        tmp_path, "with open('disk/model.bin', 'wb') as file:\n    file.write(bytes(4 << 20))\n    file.flush()\n"
    )

    assert error.around is not None
    assert error.around.disk is not None
    assert error.around.disk.file == str(tmp_path / "disk" / "model.bin")
    assert error.around.disk.full
    assert error.around.disk.path == str(tmp_path / "disk")


def test_torch_save_on_a_full_disk(tmp_path: Path) -> None:
    error = on_small_disk(tmp_path, "import torch\ntorch.save(torch.zeros(1_000_000), 'disk/model.pt')\n")

    assert error.around is not None
    assert error.around.disk is not None
    assert error.around.disk.file == str(tmp_path / "disk" / "model.pt")


def test_the_record_finds_a_place_where_the_folder_of_the_rank_is_full(tmp_path: Path) -> None:
    source = "import os\nos.environ  # its folder is on the full disk\nopen('rank_000/x', 'wb').write(bytes(4 << 20))\n"
    (tmp_path / "rank_000").mkdir()
    error = on_small_disk(tmp_path, source, "16k", str(tmp_path / "rank_000"))

    assert error.type == "OSError"
    assert list(tmp_path.glob("black_box.0.error-*.json"))


def test_full_shared_memory_and_what_fills_it(tmp_path: Path) -> None:
    source = """
import mmap, os
file = open("/dev/shm/left-over-17", "wb")
file.write(bytes(900 << 10)); file.flush()
raise RuntimeError("unable to allocate shared memory(shm) for file </torch_7>: No space left on device (28)")
"""
    error = on_small_disk(tmp_path, source, at="/dev/shm")

    assert error.around is not None
    assert error.around.shm is not None
    assert error.around.shm.total == 1 << 20
    assert error.around.shm.holds[0].name == "/dev/shm/left-over-*"


DDP = """
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head, self.frozen = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
        self.frozen.requires_grad_(False)
    def forward(self, x, skip):
        return self.head(x if skip else self.encoder(x))
net = torch.nn.parallel.DistributedDataParallel(Net())
"""


def test_parameters_without_a_gradient_have_names(tmp_path: Path) -> None:
    source = GLOO + DDP + "for skip in (False, True, True):\n    net(torch.ones(1, 2), skip).sum().backward()\n"
    run_ranks(tmp_path, source)

    import json

    (record,) = (tmp_path / "rank_000").glob("error-*.json")
    (model,) = json.loads(record.read_text())["reducers"]
    assert model["model"] == "Net"
    assert (model["parameters"], model["without"], model["raised"]) == (4, ["encoder.weight", "encoder.bias"], True)


def test_what_ddp_reduces_is_told_when_asked(tmp_path: Path) -> None:
    source = (
        GLOO
        + ASK
        + DDP
        + """
net.module.zero_grad()
net.module(torch.ones(1, 2), True).sum().backward()
ask()
say(told=word())
"""
    )
    (left,) = run_ranks(tmp_path, source)

    assert left.code == 0, left.err
    (model,) = left.said["told"]["reducers"]
    assert (model["without"], model["tolerant"], model["raised"]) == (["encoder.weight", "encoder.bias"], False, False)


def test_an_exception_that_is_being_handled_is_told_when_asked(tmp_path: Path) -> None:
    source = (
        GLOO
        + ASK
        + """
def asked():
    ask()
    return word()["handling"]
before = asked()
try:
    {}["labels"]
except KeyError as error:
    handled = asked()
say(before=before, handled=handled, after=asked())
"""
    )
    (left,) = run_ranks(tmp_path, source)

    assert left.code == 0, left.err
    assert (left.said["before"], left.said["after"]) == (None, None)
    handled = left.said["handled"]
    assert (handled["type"], handled["message"], handled["traceback"]) == ("KeyError", "'labels'", "")
    assert handled["location"]["line"] > 0


def test_a_lost_thread_and_the_keys_of_the_store_are_told_when_asked(tmp_path: Path) -> None:
    source = (
        GLOO
        + ASK
        + """
import threading
thread = threading.Thread(target=lambda: {}["labels"])
thread.start()
thread.join()
store = dist.HashStore()
for step in range(100):
    store.set("lr/%d" % step, "0.1")
ask()
say(told=word())
"""
    )
    (left,) = run_ranks(tmp_path, source)

    assert left.code == 0, left.err
    assert "KeyError: 'labels'" in left.err, "the thread's own message is printed as ever"
    told = left.said["told"]
    assert (told["lost_thread"]["type"], told["lost_thread"]["message"]) == ("KeyError", "'labels'")
    assert told["store_keys"] == [f"lr/{step}" for step in range(36, 100)]


def test_keys_that_a_long_scan_looks_at_again_and_again_are_told(tmp_path: Path) -> None:
    """A scan of as many keys as are told at once, twice: each has been looked at more than once."""
    source = (
        GLOO
        + ASK
        + """
store = dist.HashStore()
for _ in range(2):
    for number in range(64):
        store.check(["actor/%d" % number])
ask()
say(told=word())
"""
    )
    (left,) = run_ranks(tmp_path, source)

    assert left.code == 0, left.err
    assert left.said["told"]["store_polls"] == [f"actor/{number}" for number in range(64)]


def test_a_model_that_changes_while_it_is_read_costs_nothing_else(tmp_path: Path) -> None:
    source = (
        GLOO
        + ASK
        + """
from safelaunch.worker import reducers
def write():
    raise RuntimeError("dictionary changed size during iteration")
reducers.look = write
ask()
say(answered=True)
"""
    )
    (left,) = run_ranks(tmp_path, source)

    assert (left.code, left.err, left.said) == (0, "", {"answered": True})


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "29500"),
        (
            "failed to bind to ?UNKNOWN? port: 29400, code: -98, name: EADDRINUSE, message: address already in use",
            "29400",
        ),
        ("[Errno 98] error while attempting to bind on address ('::1', 8000, 0, 0): address already in use", "8000"),
        ("listen tcp 127.0.0.1:6006: bind: address already in use", "6006"),
        ("bind node-a:4000: Address already in use", "4000"),
        ("[W1122 02:11:27.123 socket.cpp:464] address already in use", None),
        ("22:11:27: address already in use", None),
        ("uv.cpp:464: address already in use", None),
        ("[Errno 98] Address already in use", None),
    ],
)
def test_the_port_that_a_message_names(said: str, number: str | None) -> None:
    match = surroundings.PORT.search(said)
    assert (next(filter(None, match.groups())) if match else None) == number
