"""Xid messages: the errors of GPUs that NVIDIA's driver writes to the kernel log, and whose fault they are. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Immediate actions of NVIDIA's catalogue, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
RESET_GPU = {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
REBOOT = {79, 151}
WORKFLOW = {48, 74}
NVLINK5 = set(range(144, 151))  # of these, lines that say "Fatal"
FATAL = RESET_GPU | REBOOT | WORKFLOW
IGNORED = {106, 107, 154}  # test messages, and the news of a recovery action, which SL112 reads

# The catalogue's causes: of the program ("user app"), and of worn memory, which one program alone may feel (94) or
# nobody yet (63, 92).
OF_PROGRAM = {13, 31, 43, 69}
OF_MEMORY = {63, 92, 94}
CLEANUP = {45}  # written for every program that is ended: a consequence

NAMES = {
    13: "exception in a program's kernel",
    31: "a program read or wrote a wrong address",
    43: "a program's channel was stopped",
    45: "a program was ended",
    46: "the GPU stopped processing",
    48: "uncorrectable memory error",
    62: "micro-controller halt",
    63: "a row of memory was remapped",
    64: "a row of memory could not be remapped",
    69: "exception of the graphics engine",
    74: "NVLink error",
    79: "the GPU fell off the bus",
    92: "many correctable memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP firmware timeout",
    120: "GSP firmware error",
    136: "NVLink training failed",
    140: "uncorrectable memory error",
    143: "GPU initialisation error",
    158: "fatal timeout",
    **dict.fromkeys(NVLINK5, "NVLink error"),
}

# At the beginning of a message: further in, the kernel may quote a name that a user has chosen, of a program or of a
# control group.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+)[^)]*\).*?: (\d+)\b")
_OFF_BUS = re.compile(r"NVRM: .*?\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\b.*fallen off the bus")
_IS_FATAL = re.compile(r"\bFatal\b")
_TIME = re.compile(r"\[ *(\d+\.\d+)\] ")
_PID = re.compile(r"\bpid='?(\d+)\b")
_CAUSE = re.compile(r"\bcaused by previous Xid (\d+)\b")


@dataclass(frozen=True)
class Xid:
    """One message about one GPU. `pid` is that of the process that the driver names, as the host counts."""

    number: int
    address: str  # domain:bus:device, as sysfs has it
    at_s: float
    text: str

    @property
    def fatal(self) -> bool:
        """Whether the GPU is of no use until it is reset or looked at."""
        return self.number in FATAL or (self.number in NVLINK5 and bool(_IS_FATAL.search(self.text)))

    @property
    def ends_work(self) -> bool:
        """Whether hardware has failed under the program that ran."""
        return self.fatal or self.number == 94

    @property
    def of_program(self) -> bool:
        """Whether the program's own kernels are the usual cause, and their context is lost."""
        return self.number in OF_PROGRAM

    @property
    def pid(self) -> int | None:
        found = _PID.search(self.text)
        return int(found[1]) if found else None

    @property
    def named(self) -> str:
        """`Xid 79 (the GPU fell off the bus)`."""
        cause = _CAUSE.search(self.text)
        return _named(self.number) + (f", caused by {_named(int(cause[1]))}," if cause else "")


def _named(number: int) -> str:
    return f"Xid {number}" + (f" ({NAMES[number]})" if number in NAMES else "")


def parse(text: str, at_s: float = 0.0) -> Xid | None:
    """The Xid message that a line of the kernel log is; None for any other line.

    Args:
        text: of the message, with or without the time that dmesg puts before it.
        at_s: when it was logged, in seconds since boot.
    """
    time = _TIME.match(text)
    if time is not None:
        at_s, text = float(time[1]), text[time.end() :]
    match = _XID.match(text)
    number = int(match[2]) if match else 79
    match = match or _OFF_BUS.match(text)
    if match is None or number in IGNORED:
        return None
    domain, _, rest = match[1].lower().partition(":")
    return Xid(number, f"{int(domain, 16):04x}:{rest}", at_s, text)
