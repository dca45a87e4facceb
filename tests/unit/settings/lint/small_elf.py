"""ELF libraries of a few hundred bytes, written by hand: what is looked for in one is all that they have."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

HEADER, SECTION = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ"
PROGBITS, STRTAB, DYNAMIC, NOBITS = 1, 3, 6, 8
NEEDED, RPATH, RUNPATH = 1, 15, 29


def write_elf(
    path: Path, constants: Sequence[bytes] = (), data: bytes = b"", needed: Sequence[str] = (), rpath: str = "",
    runpath: str = "",
) -> str:  # fmt: skip
    """A shared library with string constants, other data, and what it loads from where.

    Args:
        path: where it goes; its folder is made.
        constants: what stands in .rodata, each with a NUL behind it.
        data: what stands in .nv_fatbin.
        needed, rpath, runpath: of the dynamic section.
    """
    dynstr, tags = b"\0", []
    for tag, text in [*((NEEDED, name) for name in needed), (RPATH, rpath), (RUNPATH, runpath)]:
        if text:
            tags.append((tag, len(dynstr)))
            dynstr += text.encode() + b"\0"
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    sections = [  # name, kind, content, link
        (b"", 0, b"", 0),
        (b".rodata", PROGBITS, b"".join(constant + b"\0" for constant in constants), 0),
        (b".nv_fatbin", PROGBITS, data, 0),
        (b".dynstr", STRTAB, dynstr, 0),
        (b".dynamic", DYNAMIC, dynamic, 3),
    ]
    names = b"\0".join(name for name, *_ in sections) + b"\0.shstrtab\0"
    sections.append((b".shstrtab", STRTAB, names, 0))
    body, rows = b"", []
    for name, kind, content, link in sections:
        at = names.index(name + b"\0") if name else 0
        rows.append(struct.pack(SECTION, at, kind, 2, 0, 64 + len(body), len(content), link, 0, 1, 0))
        body += content
    # A section without content in the file: its place and size are those of memory.
    rows.append(struct.pack(SECTION, 0, NOBITS, 2, 0, 1 << 40, 1 << 40, 0, 0, 1, 0))
    header = struct.pack(
        HEADER, b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(rows), len(sections) - 1
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + body + b"".join(rows))
    return str(path)
