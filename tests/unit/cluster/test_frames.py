"""What passes between two supervisors, and what does not."""

from __future__ import annotations

import zlib

import pytest

from safelaunch.cluster import frames
from safelaunch.cluster.frames import GREETING, HEAD, NONCE, FrameError, Session, Unread
from safelaunch.cluster.messages import Beat, Hello, Suspect
from safelaunch.model import Case, Incident

KEY = bytes(range(32))


def pair(key: bytes = KEY, other: bytes = KEY) -> tuple[Session, Session]:
    dialler, listener = Session(key, dialled=True), Session(other, dialled=False)
    assert listener.feed(dialler.greeting) == []
    assert dialler.feed(listener.greeting) == []
    return dialler, listener


def test_messages_arrive_whole_and_in_order_however_they_are_cut() -> None:
    dialler, listener = pair()
    stream = dialler.seal(Hello(3)) + dialler.seal(Beat(1.5, step=7))
    found = [message for byte in stream for message in listener.feed(bytes([byte]))]
    assert found == [Hello(3), Beat(1.5, step=7)]
    assert dialler.feed(listener.seal(Beat(2.0))) == [Beat(2.0)]


def test_who_has_another_key_is_not_heard() -> None:
    dialler, listener = pair(KEY, bytes(32))
    with pytest.raises(FrameError):
        listener.feed(dialler.seal(Hello(3)))


def test_a_message_is_not_heard_twice_nor_sent_back() -> None:
    dialler, listener = pair()
    frame = dialler.seal(Hello(3))
    assert listener.feed(frame) == [Hello(3)]
    with pytest.raises(FrameError):
        listener.feed(frame)
    with pytest.raises(FrameError):
        dialler.feed(frame)


def test_a_message_of_another_connection_is_not_heard() -> None:
    frame = pair()[0].seal(Hello(3))
    with pytest.raises(FrameError):
        pair()[1].feed(frame)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", bytes(64), b"safelaunch link 1\n" + bytes(NONCE), b"\xff"])
def test_a_stranger_is_known_by_the_first_bytes(said: bytes) -> None:
    with pytest.raises(FrameError):
        Session(KEY, dialled=False).feed(said)


def test_a_greeting_alone_may_come_in_pieces() -> None:
    listener = Session(KEY, dialled=False)
    assert listener.feed(GREETING[:5]) == []
    assert not listener.is_open
    assert listener.feed(GREETING[5:] + bytes(NONCE)) == []
    assert listener.is_open


def sealed(dialler: Session, payload: bytes) -> bytes:
    """A frame with a good tag around anything, as a broken or evil node of the job could send it."""
    dialler._sent += 1
    return HEAD.pack(len(payload), frames._tag(dialler._seal, dialler._sent - 1, payload)) + payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"Hello\nno json",
        b"Hello\n" + zlib.compress(b"no json"),
        b"Hello\n5",
        b"Nobody\n{}",
        b'Hello\n{"node_rank": "three"}',
        b'Hello\n{"node_rank": %d}' % (1 << 70),
        b'Hello\n{"node_rank": {"=": 0}}',
        b"Hello\n" + zlib.compress(b"[" * 100_000),
        b"Hello\n" + zlib.compress(b'{"node_rank": 1}' + b" " * (64 << 20)),
    ],
)
def test_what_makes_no_sense_is_refused_and_does_not_unpack(payload: bytes) -> None:
    dialler, listener = pair()
    listener.feed(dialler.seal(Hello(1)))
    with pytest.raises(FrameError):
        listener.feed(sealed(dialler, payload))


def test_a_length_that_nothing_has_is_refused_before_it_comes() -> None:
    _, listener = pair()
    with pytest.raises(FrameError):
        listener.feed(HEAD.pack(frames.FIRST + 1, bytes(frames.TAG)))  # of somebody who has not shown the key
    dialler, listener = pair()
    listener.feed(dialler.seal(Hello(1)))
    with pytest.raises(FrameError):
        listener.feed(HEAD.pack(frames.MOST + 1, bytes(frames.TAG)))


def test_a_case_is_read_by_whoever_takes_it() -> None:
    dialler, listener = pair()
    case = Case(Incident("hang", 0, (), 1.0), "node-1", 6, ())
    (message,) = listener.feed(dialler.seal(Suspect(3, case)))
    assert isinstance(message, Unread)
    assert message.read() == Suspect(3, case)
    with pytest.raises(FrameError):
        Unread("Suspect", b"{}").read()


def test_unknown_fields_of_a_newer_version_are_passed_over() -> None:
    dialler, listener = pair()
    payload = b'Hello\n{"node_rank": 1, "mood": "good"}'
    assert listener.feed(sealed(dialler, payload)) == [Hello(1)]
