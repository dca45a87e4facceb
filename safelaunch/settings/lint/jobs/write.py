"""How `--fix` changes a file: its owner does it, in a folder of his, through no link that he has not named himself.

Whoever owns a folder can put another file in the place of one that was read, or a link to what is another's. So a file
is opened once, and what is compared, replaced and given its mode is that one, by its folder's descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Sequence

from safelaunch import open_folder, regular
from safelaunch.settings.lint.extract import decoded, plain
from safelaunch.settings.lint.jobs.fix import apply
from safelaunch.settings.lint.jobs.remark import Edit, Span

MOST_BYTES = 4 << 20
MOST_ROUNDS = 8  # one mend may make way for another: a variable that is exported first, and renamed then
MOST_LINKS = 8
PERMISSIONS = 0o777

Again = Callable[[str], Sequence[Edit]]


class LinkError(OSError):
    """A link that nobody has named: the file to which it leads is not changed through it."""


def settled(text: str, edits: Sequence[Edit], again: Again) -> str:
    """A text with its edits made, and those that they make way for.

    Args:
        text: as it was read.
        edits: of it.
        again: gives the edits of a text that has been changed.
    """
    for _ in range(MOST_ROUNDS):
        new = apply(text, edits)
        if new == text:
            break
        text = new
        edits = again(plain(text))
    return text


def write(path: str, read: str, edits: Sequence[Edit], again: Again, *, named: bool = True) -> str | None:
    """Make edits in a file; its line ends, its byte order mark, its owner and its permissions stay.

    Args:
        path: of the file.
        read: its text as it was looked at, without its mark and with \\n between its lines.
        edits: of that text.
        again: gives the edits of a text that has been changed.
        named: whether somebody has named the path, which may be a link of his then.

    Returns:
        The new text as `read` is one; None where it was not changed: it is no UTF-8, or no longer what was read.

    Raises:
        OSError: it cannot be read or written, or is not ours to change.
    """
    folder, name = _place(path, named=named)
    try:
        _demand_own(os.fstat(folder), "its folder belongs", also=0)
        with open(regular.inside(folder, name), "rb") as file:
            found = os.fstat(file.fileno())
            _demand_own(found, "it belongs")
            text = _text(file.read(MOST_BYTES + 1), read)
            new = text and settled(text, _behind_mark(text, edits), again)
            if not new or new == text:
                return None
            _replace(folder, name, new.encode(), found)
            return plain(new)
    finally:
        os.close(folder)


def _text(data: bytes, read: str) -> str:
    """What a file holds, where it can be changed and is what was looked at; else nothing."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    is_same = len(data) <= MOST_BYTES and plain(decoded(data)) == read
    return text if is_same and "\r" not in text.replace("\r\n", "") else ""


def _behind_mark(text: str, edits: Sequence[Edit]) -> Sequence[Edit]:
    if not text.startswith("\ufeff"):
        return edits
    return [
        edit if edit.span.line > 1 else Edit(Span(1, edit.span.start + 1, edit.span.end + 1), edit.text)
        for edit in edits
    ]


def _place(path: str, *, named: bool) -> tuple[int, str]:
    """A descriptor of the folder of a file, and its name there."""
    for _ in range(MOST_LINKS):
        above, name = os.path.split(path)
        folder = open_folder.reached(above)
        try:
            target = os.readlink(name, dir_fd=folder)
        except OSError:  # no link
            return folder, name
        owner = os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
        os.close(folder)
        if not named:
            raise LinkError(errno.ELOOP, "it is a link, and it was not named itself", path)
        if owner != os.geteuid():
            raise PermissionError(errno.EPERM, "it is another user's link: name the file", path)
        path = os.path.join(above, target)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _demand_own(found: os.stat_result, what: str, *, also: int | None = None) -> None:
    if found.st_uid not in (os.geteuid(), also):
        raise PermissionError(errno.EPERM, f"{what} to another user: fix it as its owner")


def _replace(folder: int, name: str, data: bytes, old: os.stat_result) -> None:
    beside = f".safelaunch-{secrets.token_hex(16)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as file:
        try:
            file.write(data)
            file.flush()
            mode = stat.S_IMODE(old.st_mode) & PERMISSIONS
            try:
                os.fchown(file.fileno(), -1, old.st_gid)
            except OSError:  # a group of which we are none: what it might do is not for ours
                mode &= ~0o070
            os.fchmod(file.fileno(), mode)
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (now.st_dev, now.st_ino, now.st_mtime_ns) != (old.st_dev, old.st_ino, old.st_mtime_ns):
                raise OSError(errno.EBUSY, "somebody else changes it")
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise
