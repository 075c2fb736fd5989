#!/usr/bin/env python3
"""A long run: storms, the liar test, disk faults and random repairs in turn, each with a new seed, until the time is over.

It stops at the first failure and prints the command that repeats it. MINUTES is the duration (60), MILLRACE_SEED the seed from
which the others are derived, ONLY the name of a single part to run, and MILLRACE_STORM_RECORDS the number of records of one
storm (200000).
"""

import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# As `make test` builds them. Name, the arguments of `cargo test`, the tests, and what says how long or how much.
PARTS = [
    (
        "storm",
        ["--workspace", "--test", "storm"],
        ["nothing_is_lost_or_repeated_when_any_process_is_killed"],
        {"MILLRACE_STORM_RECORDS": os.environ.get("MILLRACE_STORM_RECORDS", "200000")},
    ),
    (
        "liar",
        ["--workspace", "--test", "liar"],
        ["nothing_that_was_sent_is_ever_missing"],
        {"MILLRACE_LIAR_SECONDS": "120"},
    ),
    ("disk", ["-p", "millrace-journal", "--test", "disk"], [], {"MILLRACE_DISK_SECONDS": "60"}),
    ("oracle", ["-p", "millrace-repair", "--test", "oracle"], [], {"MILLRACE_REPAIR_SECONDS": "60"}),
]
TESTS = {
    "storm": "tests/tests/storm",
    "liar": "tests/tests/liar*",
    "disk": "crates/journal/tests/disk*",
    "oracle": "crates/repair/tests/oracle",
}
SEED = re.compile(r"MILLRACE_SEED=\d+(?: MILLRACE_[A-Z_]+=\d+)*")
TALLY = re.compile(r"^tally: (.*)$")
# What a host held at its heaviest.
MOST = re.compile(r"^most: (.*)$")
TOLD = re.compile(r"(\d+) (facts|lives)\b")


def command(part: str) -> list[str]:
    _, arguments, tests, _ = next(row for row in PARTS if row[0] == part)
    return ["cargo", "test", "--quiet", "--locked", *arguments, "--", "--nocapture", "--test-threads=1", "--exact", *tests]


def turn(part: str, seed: int, totals: Counter, most: Counter) -> bool:
    """One part with one seed; whether it held. What it did is added to the totals, what it held at most is kept."""
    settings = {"MILLRACE_SEED": str(seed), **next(row[3] for row in PARTS if row[0] == part)}
    arguments = command(part)
    if not next(row[2] for row in PARTS if row[0] == part):
        arguments.remove("--exact")
    replay = " ".join(f"{name}={value}" for name, value in settings.items())
    print(f"soak: {part}: {replay}", flush=True)
    child = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    for line in child.stdout:
        if not re.match(r"\s*$|running \d+ test|test result: ok", line):
            print(f"  {line}", end="", flush=True)
        if found := SEED.search(line):
            replay = found[0]
        if found := TALLY.match(line):
            for name, number in re.findall(r"(\w+)=(\d+)", found[1]):
                totals[name.replace("_", " ")] += int(number)
        if found := MOST.match(line):
            for name, number in re.findall(r"(\w+)=(\d+)", found[1]):
                what = f"{part}: most {name.replace('_', ' ')} of a host"
                most[what] = max(most[what], int(number))
        for number, what in TOLD.findall(line):
            totals[f"{part}: {what}"] += int(number)
    if child.wait() == 0:
        totals[f"{part}: turns"] += 1
        return True
    print(f"\nsoak: {part} FAILED. To repeat it, run\n  {replay} {shlex.join(arguments)}", flush=True)
    return False


def main() -> int:
    minutes = float(os.environ.get("MINUTES", "60"))
    # The tests take the program from target/.
    subprocess.run(["cargo", "build", "--locked", "--workspace", "--all-targets"], cwd=ROOT, check=True)
    chance = random.Random(int(os.environ.get("MILLRACE_SEED", time.time_ns())))
    only = os.environ.get("ONLY")
    parts = [row[0] for row in PARTS if only in (None, "", row[0])]
    for part in [part for part in parts if not any(ROOT.glob(TESTS[part]))]:
        print(f"soak: NOT RUN: {part}: {TESTS[part]} does not exist", flush=True)
        parts.remove(part)
    if not parts:
        print(f"soak: there is no part '{only}'; the parts are {', '.join(row[0] for row in PARTS)}", file=sys.stderr)
        return 2
    subprocess.run(["cargo", "build", "--quiet", "--locked", "-p", "millrace-cli"], cwd=ROOT, check=True)
    for part in parts:
        arguments = command(part)
        subprocess.run([*arguments[: arguments.index("--")], "--no-run"], cwd=ROOT, check=True)
    started, totals, most, failed = time.monotonic(), Counter(), Counter(), False
    while not failed and time.monotonic() - started < minutes * 60:
        for part in parts:
            failed = not turn(part, chance.getrandbits(32), totals, most)
            passed = (time.monotonic() - started) / 60
            print(f"soak: {passed:.1f} of {minutes:g} minutes", flush=True)
            if failed or passed >= minutes:
                break
    print(f"\nsoak: {'FAILED' if failed else 'passed'} after {(time.monotonic() - started) / 60:.1f} minutes")
    for what, number in [*sorted(totals.items()), *sorted(most.items())]:
        print(f"  {number:>12,}  {what}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
