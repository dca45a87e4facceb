"""Numbers in few characters."""

from __future__ import annotations


def span(seconds: float) -> str:
    """A time in six characters at most: `93.2ms`, `1.24s`, `41s`, `3m12s`, `2h05m`, `3d`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.1f}ms" if seconds < 0.09995 else f"{seconds * 1000:.0f}ms"
    if seconds < 9.995:
        return f"{seconds:.2f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m" if whole < 86400 else f"{whole // 86400}d"


def roughly(seconds: float) -> str:
    """A time in five characters at most: `61ms`, `1.2s`, `41s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 9.95 else span(seconds)


def memory(count: int) -> str:
    """Bytes in four characters: `812M`, `1.2G`, `34G`, `1.1T`."""
    value = count / (1 << 20)
    for unit in "MGT":
        if value < 999.5 or unit == "T":
            return f"{value:.1f}{unit}" if value < 9.95 and unit != "M" else f"{value:.0f}{unit}"
        value /= 1024
    return ""


def share(value: float) -> str:
    """A share, or a number of CPUs, in percent."""
    return f"{100 * value:.0f}%"
