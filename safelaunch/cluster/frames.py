"""What stands on a connection between two supervisors: frames that are numbered, bounded and authenticated.

Both ends greet with a line and a nonce. A frame is its length, a tag, and a message: a line with its kind, and lines of
JSON (`shared`), which are compressed where they are long. The tag is an HMAC (RFC 2104, SHA-256, cut to 128 bits) under
a key that both nonces enter, over the number of the frame and its payload: so none is forged by somebody without the
job's key, said again later, or sent back.
"""

from __future__ import annotations

import hmac
import secrets
import struct
import zlib
from dataclasses import dataclass

from safelaunch.cluster import shared
from safelaunch.cluster.messages import KINDS, LONG, Message
from safelaunch.codec import ShapeError, checked

GREETING = b"safelaunch link 2\n"  # another version has another number, and is no peer
NONCE = 16  # bytes
TAG = 16
HEAD = struct.Struct(f"!I{TAG}s")
MOST = 1 << 20  # bytes of a frame: the case of 8 ranks takes some 20 KB
FIRST = 1 << 12  # of the first one, with which the other end shows that it has the job's key
UNPACKED = 8 << 20
ZLIB = b"\x78"  # the first byte of what zlib has made (RFC 1950), and of no JSON
SHORT = 256  # bytes that are not compressed: zlib takes longer than the wire


class FrameError(Exception):
    """What came is no frame of this job: the connection is of no use."""


@dataclass(frozen=True)
class Unread:
    """A case or a verdict, which takes long to read: whoever takes it does, so that the link does not fall silent."""

    kind: str
    body: bytes

    def read(self) -> Message:
        """The message; raises FrameError."""
        return _read(self.kind, self.body)


class Session:
    """One end of a connection.

    Args:
        key: the job's.
        dialled: whether this end has dialled the other.
    """

    def __init__(self, key: bytes, *, dialled: bool) -> None:
        self._key = key
        self._dialled = dialled
        self._nonce = secrets.token_bytes(NONCE)
        self._received = b""
        self._seal = self._open = b""  # keys of the two directions, once both nonces are known
        self._sent = self._taken = 0

    @property
    def greeting(self) -> bytes:
        """What this end says first."""
        return GREETING + self._nonce

    @property
    def is_open(self) -> bool:
        """Whether the other end has greeted, so that messages can be sent."""
        return bool(self._seal)

    def feed(self, data: bytes) -> list[Message | Unread]:
        """The messages that are complete with these bytes. Raises FrameError."""
        self._received += data
        if not self.is_open and not self._greeted():
            return []
        found: list[Message | Unread] = []
        while len(self._received) >= HEAD.size:
            length, tag = HEAD.unpack_from(self._received)
            if length > (MOST if self._taken else FIRST):
                raise FrameError(f"a frame of {length} bytes")
            if len(self._received) < HEAD.size + length:
                break
            payload = self._received[HEAD.size : HEAD.size + length]
            self._received = self._received[HEAD.size + length :]
            if not hmac.compare_digest(tag, _tag(self._open, self._taken, payload)):
                raise FrameError("a frame that this job has not made")
            self._taken += 1
            kind, _, body = payload.partition(b"\n")
            message = Unread(kind.decode("ascii", "replace"), body)
            found.append(message if message.kind in LONG else message.read())
        return found

    def seal(self, message: Message | bytes) -> bytes:
        """The frame of a message, or of what `packed` has made of one for several ends. Raises FrameError."""
        payload = message if isinstance(message, bytes) else packed(message)
        self._sent += 1
        return HEAD.pack(len(payload), _tag(self._seal, self._sent - 1, payload)) + payload

    def _greeted(self) -> bool:
        whole = len(GREETING) + NONCE
        if not self._received.startswith(GREETING[: len(self._received)]):
            raise FrameError("no supervisor of this version")
        if len(self._received) < whole:
            return False
        theirs, self._received = self._received[len(GREETING) : whole], self._received[whole:]
        nonces = self._nonce + theirs if self._dialled else theirs + self._nonce
        to_listener, to_dialler = (_mac(self._key, nonces + end) for end in (b"listener", b"dialler"))
        self._seal, self._open = (to_listener, to_dialler) if self._dialled else (to_dialler, to_listener)
        return True


def packed(message: Message) -> bytes:
    """The payload of a message; raises FrameError for one that is too large."""
    text = shared.written(message).encode()
    body = text if len(text) <= SHORT else zlib.compress(text, 1)
    payload = type(message).__name__.encode() + b"\n" + body
    if len(payload) > MOST:
        raise FrameError(f"a message of {len(payload)} bytes")
    return payload


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _tag(key: bytes, number: int, payload: bytes) -> bytes:
    return _mac(key, number.to_bytes(8, "big") + payload)[:TAG]


def _read(kind: str, body: bytes) -> Message:
    try:
        return checked(KINDS[kind], shared.read(_unpacked(body)))
    except (zlib.error, ValueError, TypeError, LookupError, RecursionError, ShapeError) as error:
        raise FrameError(f"a message that cannot be read: {error!r}"[:200]) from None


def _unpacked(body: bytes) -> bytes:
    if body[:1] != ZLIB:
        return body
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(body, UNPACKED)
    if unpacking.unconsumed_tail:
        raise FrameError("a message that unpacks to too much")
    return text
