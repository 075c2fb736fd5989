#!/usr/bin/env python3
"""How many seconds of CPU the compiler needs for each crate, beside the seconds that are written in scripts/cpu/seconds.json.

  cpu.py run COMMAND…   runs a build with cargo, and notes the seconds of each run of the compiler in target/ledger/cpu.txt
  cpu.py show           prints the seconds of each crate that this build compiled
  cpu.py write          writes them to scripts/cpu/seconds.json; crates that it did not compile keep their seconds

`test.py` runs the first two. The seconds depend on the machine and on its load, so a crate is marked only if it needs much more than what
is written.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Optional

HERE = Path(__file__).resolve().parent
WRITTEN = HERE / "seconds.json"
NOTED = HERE.parent.parent / "target" / "ledger" / "cpu.txt"
OURS = "millrace"
# What a new system may add to a build.
SYSTEM_S = 25
# Another machine, or other work on this one, explains a growth up to this.
TOLERANCE = 1.5
# Crates that need less are not listed.
LISTED_S = 2


def noted(lines: list[str]) -> dict[str, float]:
    """The seconds of each crate of ours without its tests, of all tests, and of all that comes from elsewhere or runs during the build."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        crate, kind, user, system = line.split()
        ours = crate.startswith(OURS) and kind != "build"
        name = "tests" if kind == "test" else crate.removeprefix(OURS + "_") if ours else "libraries"
        seconds[name] += float(user) + float(system)
    return {name: round(total, 1) for name, total in seconds.items()}


def report(now: dict[str, float], written: dict[str, float]) -> list[str]:
    """A line for each crate, and one for all that were compiled and are written."""
    lines = []
    for name, seconds in sorted(now.items(), key=lambda entry: -entry[1]):
        if seconds >= LISTED_S:
            then = written.get(name)
            shown = f"{then:7.1f}" if then is not None else "      -"
            lines.append(f"{seconds:7.1f} {shown}  {name}{_mark(seconds, then)}")
    both = [name for name in now if name in written]
    return [*lines, f"{sum(now[name] for name in both):7.1f} {sum(written[name] for name in both):7.1f}  together, of those that are written"]


def _mark(seconds: float, then: Optional[float]) -> str:
    """What to look at."""
    if then is None:
        return "  is NEW" + (f", and needs more than {SYSTEM_S} s" if seconds > SYSTEM_S else "")
    growth = seconds - then
    if seconds <= then * TOLERANCE + LISTED_S:
        return ""
    return f"  GREW by {growth:.0f} s" + (f", more than {SYSTEM_S} s" if growth > SYSTEM_S else "")


def show() -> None:
    """Prints what the last build needed, if it compiled anything."""
    if NOTED.exists() and (now := noted(NOTED.read_text().splitlines())):
        print("\n── seconds of CPU of the compiler: measured, written in scripts/cpu/seconds.json, crate")
        print("\n".join(report(now, json.loads(WRITTEN.read_text()))))


def run(command: list[str]) -> None:
    """Becomes this command."""
    NOTED.parent.mkdir(parents=True, exist_ok=True)
    NOTED.unlink(missing_ok=True)
    # Someone else's wrapper, such as a cache of compiled code, is left alone.
    if not os.environ.get("RUSTC_WRAPPER"):
        os.environ |= {"RUSTC_WRAPPER": str(HERE / "rustc.sh"), "MILLRACE_CPU": str(NOTED)}
    os.execvp(command[0], command)


def write() -> None:
    """Writes the seconds of the crates that the last build compiled."""
    seconds = json.loads(WRITTEN.read_text()) | noted(NOTED.read_text().splitlines())
    WRITTEN.write_text(json.dumps(dict(sorted(seconds.items())), indent=2) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *command] if command:
            run(command)
        case ["show"]:
            show()
        case ["write"]:
            write()
        case _:
            sys.exit(__doc__)
