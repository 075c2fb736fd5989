#!/usr/bin/env python3
"""Packs the readings for `millrace demo` into FILE: an hour for an hour, in tenths of a degree Celsius.

    ./pack.py ../../../crates/cli/src/commands/demo/temperatures.bin

The three stations follow one another. Each is its first reading (2 bytes, little-endian, signed), and then, for each hour, the difference
to the hour before (1 byte, signed). Unlike the CSV files, they have no gaps: a missing hour is interpolated from its neighbours.
"""

from __future__ import annotations

import csv
import struct
import sys
from pathlib import Path

STATIONS = ("jfk", "lga", "ewr")
HOUR_S = 3600
BEGIN_S = 1357020000  # 2013-01-01T06:00:00Z
HOURS = 8730


def main(target: str) -> None:
    here = Path(__file__).parent
    packed = b""
    for station in STATIONS:
        tenths = hourly(here / f"{station}.csv")
        steps = [new - old for old, new in zip(tenths, tenths[1:])]
        # A jump that does not fit is a faulty reading; the next hours catch up.
        packed += struct.pack("<h", tenths[0]) + bytes(step & 0xFF for step in limited(steps))
    Path(target).write_bytes(packed)


def hourly(path: Path) -> list[int]:
    with open(path, newline="", encoding="utf-8") as source:
        rows = [(int(row["epoch"]), row["temperature_f"]) for row in csv.DictReader(source)]
    known = {epoch: (float(value) - 32) / 1.8 for epoch, value in rows if value != "NA"}
    celsius = [known.get(BEGIN_S + n * HOUR_S) for n in range(HOURS)]
    for n, value in enumerate(celsius):
        if value is None:
            after = next((m for m in range(n, HOURS) if celsius[m] is not None), n - 1)
            before = celsius[n - 1] if n else celsius[after]
            celsius[n] = before + (celsius[after] - before) / (after - n + 1)
    return [round(10 * value) for value in celsius]


def limited(steps: list[int]) -> list[int]:
    rest, fits = 0, []
    for step in steps:
        rest += step
        fits.append(max(-127, min(127, rest)))
        rest -= fits[-1]
    return fits


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
