"""Durations and times as people write and read them."""

from __future__ import annotations

import re
from datetime import datetime, timezone

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """`90s`, `5m`, `1h` or `3d` in seconds."""
    match = re.fullmatch(r"(\d{1,9})(s|m|h|d)", text.strip())
    if not match:
        raise ValueError(f"'{text}' is not a duration such as 90s, 5m, 1h or 3d")
    return int(match[1]) * UNITS_S[match[2]]


def duration(s: int) -> str:
    """The shortest exact way to write it: 3600 is `1h`."""
    unit = next(unit for unit in ("d", "h", "m", "s") if s % UNITS_S[unit] == 0)
    return f"{s // UNITS_S[unit]}{unit}"


def in_words(s: int) -> str:
    """The same in words: `1 hour`, `5 minutes`."""
    units = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    unit, name = next(row for row in units if s % row[0] == 0)
    return f"{s // unit} {name}{'s' if s != unit else ''}"


def utc(t: int) -> datetime:
    return datetime.fromtimestamp(t, timezone.utc)


def day(t: int) -> str:
    return f"{utc(t):%Y-%m-%d}"
