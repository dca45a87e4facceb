"""The link between the supervisors of a job: a thread of its own, so that a busy or blocked supervisor stays heard.

It is a star. The node with the lowest node rank that lives is the hub, and all others are connected to it. When the hub
is lost, the next one takes over: everybody knows all addresses from the start.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from safelaunch.cluster.frames import FrameError, Session, Unread, packed
from safelaunch.cluster.listener import make_room
from safelaunch.cluster.messages import OF_THE_HUB, Answer, Beat, Goodbye, Hello, Lost, Members, Message
from safelaunch.cluster.peers import Peers
from safelaunch.model.nodes import Node, Nodes

TICK_S = 0.25
BEAT_S = 2.0
DIAL_S = 3.0  # the kernel sends a second packet after 1 s
REDIAL_S = 0.5
GREET_S = 5.0  # for whoever has connected to say that it is one of us
STRANGERS = 64  # connections of those who have not, beside one for each node: for one more, the oldest is closed
BACKLOG = 4 << 20  # bytes that one node may leave unread
WAITING = 4096  # messages that are not taken in yet; a case of each of so many nodes


@dataclass(eq=False)
class _Line:
    """One connection, and the node at its other end (None: it has not said)."""

    socket: socket.socket
    session: Session
    opened: float
    node: int | None = None
    dialling: bool = False
    out: bytearray = field(default_factory=bytearray)
    waiting: list[Message | bytes] = field(default_factory=list)  # until the other end has greeted
    awaits_room: bool = False  # the kernel takes no more for now


class Link(threading.Thread):
    """This node's end of the link. What others than the hub's own loop call is safe from any thread.

    Args:
        listener: a socket that listens where the others will dial.
        endpoint: the name or address of the node whose `Node.ip` is empty.
    """

    def __init__(self, listener: socket.socket, endpoint: str = "") -> None:
        super().__init__(name="safelaunch-link", daemon=True)
        self.step = 0  # this node's latest optimizer step, for the others
        self._inbox: queue.SimpleQueue[tuple[int, Message | Unread]] = queue.SimpleQueue()  # node rank, message
        self.fault: Exception | None = None
        self.peers = Peers()
        self._listener = listener
        self._endpoint = endpoint
        self._lines: dict[int, _Line] = {}  # by descriptor
        self._uplink: _Line | None = None
        self._key = b""
        self._attempt = -1
        self._members: tuple[int, ...] = ()  # as this hub has told them
        self._next_tick = self._next_beat = self._next_dial = 0.0
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._woken, self._wake = os.pipe()
        self._closing = False
        self._deaf = False  # nobody can be let in until the next tick

    # ------------------------------------------------------------------------------------------ from outside

    def meet(self, nodes: Nodes, key: bytes) -> None:
        """These are the nodes of the job from now on, and this is their key; of one attempt they may become more."""
        self._order(lambda: self._met(nodes, key))

    def to_hub(self, message: Message) -> None:
        """Say something to the hub, which may be this node: then it comes to its own inbox."""
        self._order(lambda: self._to_hub(message))

    @property
    def reaches_hub(self) -> bool:
        """Whether what is said to the hub now goes anywhere."""
        return self.peers.is_hub or self._uplink is not None

    def to_all(self, message: Message) -> None:
        """As the hub: say something to every node, this one included."""
        self._order(lambda: self._to_all(message))

    def to_node(self, node: int, message: Message) -> None:
        """As the hub: say something to one node, which may be this one."""
        self._order(lambda: self._to_node(node, message))

    def take(self, timeout: float) -> tuple[int, Message]:
        """What has come that is not for the link itself: the node rank, and the message. Raises queue.Empty."""
        node, message = self._inbox.get(timeout > 0, timeout or None)
        if not isinstance(message, Unread):
            return node, message
        try:
            return node, message.read()
        except FrameError:
            self._order(lambda: self._drop_node(node))
            raise queue.Empty from None

    def close(self) -> None:
        """Say goodbye and end; what has been said before is on its way. It takes at most a second."""
        if self.is_alive():
            self._order(self._say_goodbye)
            self.join(1.0)

    def _order(self, action: Callable[[], None]) -> None:
        self._orders.put(action)
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\n")

    # ------------------------------------------------------------------------------------------ the thread

    def run(self) -> None:
        """Until `close`; a fault of ours ends the link, and nothing else."""
        try:
            with selectors.DefaultSelector() as self._selector:
                self._listener.setblocking(False)
                self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
                self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.read(self._woken, 1 << 12))
                while not self._closing:
                    self._round()
        except Exception as error:
            self.fault = error
        finally:
            for line in list(self._lines.values()):
                line.socket.close()
            self._listener.close()

    def _round(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            if key.fd in self._selector.get_map():
                key.data()
        while not self._orders.empty():
            self._orders.get()()
        now = time.monotonic()
        if now >= self._next_tick:  # and not for each message: this asks for every node
            self._next_tick = now + TICK_S
            self._tick(now)

    def _tick(self, now: float) -> None:
        if self._deaf:
            self._deaf = False
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        for line in list(self._lines.values()):
            limit = DIAL_S if line.dialling else GREET_S
            if (line.node is None or line.dialling) and now - line.opened > limit:
                self._drop(line)
        lost = self.peers.look(now)
        if lost and self.peers.is_hub:
            self._to_all(Lost(lost), mine=False)
        self._keep_uplink(now)
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._beat(now)

    def _met(self, nodes: Nodes, key: bytes) -> None:
        make_room(len(nodes.nodes))
        self._next_tick = 0.0
        if nodes.attempt == self._attempt and key == self._key and self.peers.join(nodes):
            return
        self._attempt = nodes.attempt
        for line in list(self._lines.values()):
            self._drop(line)
        with contextlib.suppress(queue.Empty):  # whoever reads the inbox may be quicker
            while True:
                self._inbox.get_nowait()  # of an attempt before
        self._key = key
        self.peers.meet(nodes, time.monotonic())

    def _beat(self, now: float) -> None:
        if self.peers.is_hub:  # which is heard by its answers
            members = self.peers.linked
            if members != self._members:
                self._members = members
                self._to_all(Members(members), mine=False)
        elif self._uplink is not None and not self._uplink.dialling:
            self._send(self._uplink, Beat(now, self.step))

    # ------------------------------------------------------------------------------------------- messages

    def _to_hub(self, message: Message) -> None:
        if self.peers.is_hub:
            self._inbox.put((self.peers.me, message))
        elif self._uplink is not None:
            self._send(self._uplink, message)

    def _to_node(self, node: int, message: Message) -> None:
        if node == self.peers.me:
            self._inbox.put((node, message))
        for line in self._lines_of(node):
            self._send(line, message)

    def _to_all(self, message: Message, *, mine: bool = True) -> None:
        if mine:
            self._inbox.put((self.peers.me, message))
        if not self._lines:
            return
        try:
            payload = packed(message)  # once for all
        except FrameError:
            return
        for line in list(self._lines.values()):
            if line.node is not None and line is not self._uplink:
                self._send(line, payload)

    def _say_goodbye(self) -> None:
        goodbye = Goodbye(self.peers.me)
        if self.peers.is_hub:
            self._to_all(goodbye, mine=False)
        else:
            self._to_hub(goodbye)
        for line in list(self._lines.values()):
            line.socket.setblocking(True)
            line.socket.settimeout(0.2)
            with contextlib.suppress(OSError):
                line.socket.sendall(line.out)
        self._closing = True

    def _send(self, line: _Line, message: Message | bytes) -> None:
        if line.dialling or not line.session.is_open:
            line.waiting.append(message)
            return
        try:
            line.out += line.session.seal(message)
        except FrameError:
            return  # it is larger than a message may be: the others judge without it
        if len(line.out) > BACKLOG:
            self._drop(line)  # it reads nothing
        else:
            self._flush(line)

    def _taken(self, line: _Line, message: Message | Unread) -> None:
        now = time.monotonic()
        if isinstance(message, Hello):
            self._greeted(line, message, now)
            return
        if line.node is None:
            raise FrameError("a word before the greeting")
        kind = message.kind if isinstance(message, Unread) else type(message).__name__
        if kind in OF_THE_HUB and line is not self._uplink:
            raise FrameError("a node that is not the hub speaks as the hub")
        self.peers.heard(line.node, now, message.step if isinstance(message, (Beat, Answer)) else 0)
        if isinstance(message, Beat):
            if self.peers.is_hub:
                self._send(line, Answer(message.t, now, self.step))
        elif isinstance(message, Answer):
            self.peers.clock(message.asked, message.t, now)
        elif isinstance(message, Goodbye):
            self.peers.left(line.node, now)
        elif isinstance(message, Members):
            self.peers.members = message.node_ranks
        elif isinstance(message, Lost):
            self.peers.told(message.nodes)
        elif self._inbox.qsize() < WAITING:
            self._inbox.put((line.node, message))
        else:
            raise FrameError("more than anybody has to say")

    def _greeted(self, line: _Line, hello: Hello, now: float) -> None:
        if not self.peers.admits(hello):
            raise FrameError("no node of this attempt")
        for other in self._lines_of(hello.node_rank):
            if other is not line:
                self._drop(other)  # it has dialled anew
        line.node = hello.node_rank
        self.peers.heard(hello.node_rank, now, 0)

    # ---------------------------------------------------------------------------------------- connections

    def _keep_uplink(self, now: float) -> None:
        """Be connected to the hub, unless this node is the hub."""
        hub = self.peers.hub
        if self._uplink is not None and self._uplink.node != hub:
            self._drop(self._uplink)
        if hub is None or hub == self.peers.me or self._uplink is not None or now < self._next_dial:
            return
        self._next_dial = now + REDIAL_S
        node = self.peers.nodes[hub]
        with contextlib.suppress(OSError):
            self._dial(node, now)

    def _dial(self, node: Node, now: float) -> None:
        # A name is looked up by the system's resolver, which may take its time: in this thread alone.
        family, kind, protocol, _, address = socket.getaddrinfo(
            node.ip or self._endpoint, node.port, type=socket.SOCK_STREAM
        )[0]
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        connection.connect_ex(address)
        self._uplink = line = _Line(connection, Session(self._key, dialled=True), now, node.node_rank, dialling=True)
        line.waiting.append(Hello(self.peers.me))
        line.waiting.append(Beat(now, self.step))
        self._lines[connection.fileno()] = line
        self._selector.register(connection, selectors.EVENT_WRITE, lambda: self._connected(line))

    def _connected(self, line: _Line) -> None:
        if line.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._drop(line)
            return
        line.out += line.session.greeting
        self._selector.modify(line.socket, selectors.EVENT_READ, lambda: self._ready(line))
        self._flush(line)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError:  # too many open files: whoever waits is still there at the next tick
            self._selector.unregister(self._listener)
            self._deaf = True
            return
        with contextlib.suppress(OSError):
            if not self._key:
                connection.close()
                return
            strangers = [line for line in self._lines.values() if line.node is None]
            if len(strangers) >= STRANGERS + len(self.peers.nodes):  # a node is known at once, and finds room so
                self._drop(min(strangers, key=lambda line: line.opened))
            connection.setblocking(False)
            line = _Line(connection, Session(self._key, dialled=False), time.monotonic())
            self._lines[connection.fileno()] = line
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._ready(line))
            line.out += line.session.greeting
            self._flush(line)

    def _readable(self, line: _Line) -> None:
        try:
            data = line.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            messages = line.session.feed(data)
            if line.session.is_open:
                line.dialling = False
                waiting, line.waiting = line.waiting, []
                for kept in waiting:
                    self._send(line, kept)
            for message in messages:
                self._taken(line, message)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, FrameError):
            self._drop(line)

    def _flush(self, line: _Line) -> None:
        try:
            while line.out:
                del line.out[: line.socket.send(line.out)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(line)
            return
        if line.awaits_room != bool(line.out) and line.socket.fileno() in self._selector.get_map():
            line.awaits_room = bool(line.out)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.out else 0)
            self._selector.modify(line.socket, events, lambda: self._ready(line))

    def _ready(self, line: _Line) -> None:
        if line.out:
            self._flush(line)
        if line.socket.fileno() >= 0:
            self._readable(line)

    def _lines_of(self, node: int) -> list[_Line]:
        return [line for line in self._lines.values() if line.node == node]

    def _drop_node(self, node: int) -> None:
        for line in self._lines_of(node):
            self._drop(line)

    def _drop(self, line: _Line) -> None:
        descriptor = line.socket.fileno()
        if descriptor >= 0:
            with contextlib.suppress(KeyError):
                self._selector.unregister(line.socket)
            self._lines.pop(descriptor, None)
            line.socket.close()
        if line is self._uplink:
            self._uplink = None
        if line.node is not None:
            self.peers.closed(line.node, time.monotonic())
