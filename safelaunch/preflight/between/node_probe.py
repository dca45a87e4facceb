"""Runs in: a child process, one on each node. Meets the probes of the other nodes and prints Pictures.

The node that owns the endpoint holds the meeting (`coordinator`): it waits for all to come, then posts one task after
the other, which all nodes do and answer, and last the picture that comes of it. Each line is a whole Picture, the
last one counts: so a probe that is killed has told what it knew.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import threading
import time
from itertools import count
from typing import Any, NoReturn, TextIO

from safelaunch.codec import from_json, to_json
from safelaunch.preflight.active.forked import answer_stream
from safelaunch.preflight.between.coordinator import Coordinator
from safelaunch.preflight.between.dialing import dial
from safelaunch.preflight.between.facts import Picture, Place, Request, Task
from safelaunch.preflight.between.gathering import TURNS
from safelaunch.preflight.between.interfaces import interfaces, offered
from safelaunch.preflight.between.parent import end_with
from safelaunch.preflight.between.progress_output import ProgressOutput
from safelaunch.preflight.between.rank_assignment import Arrival
from safelaunch.preflight.between.stage import REQUEST
from safelaunch.preflight.between.store import OPEN_S, LostError, MeetingStore, reach
from safelaunch.preflight.between.tasks import Tasks


class Node:
    """This node, at the meeting."""

    def __init__(self, request: Request, answer: TextIO) -> None:
        self.request = request
        self.begin = time.monotonic()
        self.until = self.begin + request.deadline_s
        picture = Picture(
            request.nodes, ranked=request.rank is not None, waited_s=request.arrive_s, limits=request.limits
        )
        self.output = ProgressOutput(picture, answer)
        self._answer = answer
        self._tasks: Tasks | None = None

    def run(self) -> None:
        """Take part in the meeting to its end, or to the deadline."""
        watchdog = threading.Timer(self.request.deadline_s, self.give_up)
        watchdog.daemon = True
        try:
            watchdog.start()
            facts = self.request.facts
            versions = {**facts.versions, **_versions()}
            own = tuple(sorted({address for addresses in interfaces().values() for address in addresses}))
            self._tasks = tasks = Tasks(
                self.output,
                dataclasses.replace(facts, versions=versions, own=own),
                ("localhost", self.request.port),
                self.request.meeting,
            )
        except _NoTorchError as error:
            self.output.tell(unlooked=str(error))
            return
        except (RuntimeError, OSError) as error:  # no thread or no port is left to this user
            self.output.tell(unlooked=f"the probe cannot work on this node: {error}")
            return
        holds = self.request.rank == 0 if self.request.rank is not None else self.request.owner
        try:
            if not (holds and self._hold(tasks)):
                self._join(tasks)
        except LostError as error:
            met = self.output.picture.nodes or self.output.begun
            self.output.cut_short(f"the meeting was lost while {self.output.doing}: {error}" if met else str(error))

    def give_up(self) -> NoReturn:
        """The deadline of the whole stage."""
        self.output.cut_short(f"the time was up while {self.output.doing}")
        self.close()

    def close(self) -> NoReturn:
        """End at once: the kernel closes the store's port, whatever torch's threads wait for."""
        if self._tasks is not None:
            self._tasks.end()
        self._answer.flush()
        os._exit(0)

    def _hold(self, tasks: Tasks) -> bool:
        """Hold the meeting; False where another node on this machine does so already."""
        request = self.request
        self.output.doing = "opening the endpoint's port"
        try:
            store = MeetingStore("localhost", request.port, master=True, name=request.meeting)
        except LostError as error:
            if request.rank is None:
                return False
            self.output.tell(unlooked=f"port {request.port} cannot be opened on this node: {error}")
            return True
        tasks.facts = dataclasses.replace(tasks.facts, ip=self._offered(tasks.facts.endpoint))
        Coordinator(request, self.output, tasks, store, self.until).hold(self.begin + request.arrive_s)
        return True

    def _join(self, tasks: Tasks) -> None:
        """Come to a meeting that another node holds, and do what it asks for until it ends."""
        request, output = self.request, self.output
        output.doing = "connecting to the endpoint"
        tasks.endpoint_ip, mine = reach(request.host, request.port, self.begin + request.arrive_s)
        tasks.store = (request.host, request.port)
        store = MeetingStore(request.host, request.port, master=False, name=request.meeting)
        if store.wait(bool, "open", time.monotonic() + OPEN_S) is None:
            raise LostError(f"something listens at {request.host}:{request.port}, but holds no check between nodes")
        store.add("joined")
        output.doing = "waiting for the others to come"
        seat = store.add("seats")
        tasks.take(seat, request.rank)
        place = Place(request.rank if request.rank is not None else -1, seat, mine, tasks.listener.port)
        arrival = Arrival(tasks.facts.host, request.rank, _gone(store, tasks.facts.host, place))
        store.post(f"came/{seat}", to_json(arrival))
        tasks.mute("mute")
        ip = self._offered((mine,)) or mine
        facts = dataclasses.replace(tasks.facts, ip=ip, left_s=self.until - time.monotonic())
        store.post(f"facts/{seat}", to_json(facts))
        for number in count():
            task = store.wait(Task, f"task/{number}", self.until)
            if task is None:
                self.give_up()
            if task.task == "end":
                if task.picture is not None and not task.picture.is_of(request.nodes):
                    raise LostError("the node that holds the check says what cannot be of this job")
                output.tell(**vars(task.picture or output.picture))
                store.add("left")
                return
            if task.task == "roll":
                store.post(f"there/{number}/{seat}", True)
                continue
            if task.task == "dial":
                tasks.learn(task.roster)
                output.begun = True
            if tasks.roster and tasks.rank >= 0:
                store.post(f"done/{number}/{tasks.rank}", tasks.do(task) or {})
            output.doing = "waiting for the node that holds the meeting"

    def _offered(self, met_at: tuple[str, ...]) -> str:
        return offered(os.environ, self.request.facts.uses_gpu, met_at, interfaces(up=True))


class _NoTorchError(Exception):
    """torch cannot be imported."""


def _versions() -> dict[str, str]:
    """What the ranks would run."""
    try:
        torch: Any = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except Exception as error:
        raise _NoTorchError(f"torch cannot be imported: {type(error).__name__}: {error}") from error
    known = {
        "torch": str(torch.__version__),
        "CUDA": str(torch.version.cuda or ""),
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "safelaunch": str(getattr(sys.modules["safelaunch"], "__version__", "")),
    }
    try:
        known["NCCL"] = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else ""
    except (AttributeError, RuntimeError):
        known["NCCL"] = ""
    return known


def _gone(store: MeetingStore, host: str, place: Place) -> tuple[int, ...]:
    """The seats of those that came from this very host before, as the same node, and answer no more: it was started
    again. From this host no firewall is in the way, so that one that is there does answer."""
    turn = store.add(f"from/{host}")
    store.post(f"from/{host}/{turn}", to_json(place))
    known = [store.peek(Place, f"from/{host}/{earlier}") for earlier in range(max(1, turn - TURNS), turn)]
    return tuple(
        other.seat for other in known if other is not None and other.rank == place.rank and dial(-1, other).error
    )


def main() -> None:
    request = from_json(Request, json.loads(os.environ[REQUEST]))
    end_with(request.parent)
    node = Node(request, answer_stream())
    node.run()
    node.close()


if __name__ == "__main__":
    main()
