#!/usr/bin/env python3
"""Everything that must hold, in one run: formats, lints, one build, then every suite. Whatever fails, the rest is run as well.

At the end stands the ledger: the minutes of each step and of each suite, and the ten slowest tests. It is also written to
target/ledger/ledger.json. `make test` calls this with everything installed; words of this script's own:

  test.py [STEP…]    only these steps: format lints build wheel rust examples http python
"""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as XML
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "target" / "ledger"
BIN = ROOT / ".venv" / "bin"
SLOWEST = 10


def pytest(name: str, *arguments: str) -> list[str]:
    """A suite of pytest over several processes; a test file stays in one of them, and so do its hosts."""
    report = f"--junitxml={LEDGER / name}.xml"
    return [str(BIN / "python"), "-m", "pytest", "-q", "-n", "4", "--dist", "loadfile", report, *arguments]


# In the order in which they run: what is quick to refuse comes first.
STEPS: dict[str, list[str]] = {
    "format": ["cargo", "fmt", "--all", "--check"],
    "build": ["cargo", "build", "--locked", "--workspace", "--all-targets"],
    "wheel": ["scripts/wheel.sh", "dev"],
    "lints": ["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
    "rust": [str(BIN / "cargo-nextest"), "nextest", "run", "--locked", "--workspace", "--all-targets"],
    "examples": pytest("examples", "examples"),
    "http": pytest("http", "tests/http"),
    "python": pytest("python", "-c", "sdk/python/pyproject.toml", "sdk/python/tests"),
}


def run(step: str) -> tuple[float, bool]:
    """The seconds a step took, and whether it held."""
    print(f"\n── {step}: {' '.join(STEPS[step]).replace(str(ROOT) + '/', '')}", flush=True)
    started = time.monotonic()
    held = subprocess.run(STEPS[step], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0
    seconds = time.monotonic() - started
    print(f"── {step}: {'ok' if held else 'FAILED'} after {seconds:.0f} s", flush=True)
    return seconds, held


def cases() -> list[tuple[str, str, float, bool]]:
    """Suite, name, seconds and outcome of every test of this run, from the reports of its runners."""
    reports = sorted(LEDGER.glob("*.xml"))
    found = []
    for report in reports:
        for suite in XML.parse(report).iter("testsuite"):
            name = suite.get("name") if report.stem == "rust" else report.stem
            for case in suite.iter("testcase"):
                failed = case.find("failure") is not None or case.find("error") is not None
                if case.find("skipped") is None:
                    found.append((name, case.get("name"), float(case.get("time", 0)), failed))
    return found


def ledger(steps: dict[str, tuple[float, bool]]) -> None:
    """Prints where the time went."""
    tests = cases()
    suites, counts = Counter(), Counter()
    for suite, _, seconds, _ in tests:
        suites[suite] += seconds
        counts[suite] += 1
    print("\n── ledger: minutes of each step")
    for step, (seconds, held) in steps.items():
        print(f"{seconds / 60:7.2f}  {step}{'' if held else '  FAILED'}")
    print(f"{sum(seconds for seconds, _ in steps.values()) / 60:7.2f}  in all")
    print("\n── ledger: minutes of each suite, one test after the other")
    for suite, seconds in suites.most_common():
        print(f"{seconds / 60:7.2f}  {suite} ({counts[suite]})")
    slowest = sorted(tests, key=lambda test: -test[2])[:SLOWEST]
    print(f"\n── ledger: the {len(slowest)} slowest tests, in seconds")
    for suite, name, seconds, _ in slowest:
        print(f"{seconds:7.1f}  {suite} {name}")
    failed = [f"{suite} {name}" for suite, name, _, failed in tests if failed]
    for name in failed:
        print(f"FAILED   {name}")
    written = {
        "steps": {step: round(seconds, 1) for step, (seconds, _) in steps.items()},
        "suites": {suite: round(seconds, 1) for suite, seconds in suites.items()},
        "slowest": [[suite, name, seconds] for suite, name, seconds, _ in slowest],
    }
    (LEDGER / "ledger.json").write_text(json.dumps(written, indent=2) + "\n")
    print(f"\n{len(tests) - len(failed)} passed, {len(failed)} failed")


def main() -> int:
    wanted = sys.argv[1:] or list(STEPS)
    if unknown := [step for step in wanted if step not in STEPS]:
        print(f"test: no step {unknown[0]!r}; the steps are {' '.join(STEPS)}", file=sys.stderr)
        return 2
    LEDGER.mkdir(parents=True, exist_ok=True)
    for report in LEDGER.glob("*.xml"):
        report.unlink()
    (LEDGER / "rust.xml").unlink(missing_ok=True)
    os.environ["PATH"] += os.pathsep + str(Path.home() / ".cargo" / "bin")
    steps = {}
    for step in (step for step in STEPS if step in wanted):
        steps[step] = run(step)
        if step == "rust" and (report := ROOT / "target/nextest/default/junit.xml").exists():
            report.rename(LEDGER / "rust.xml")
    ledger(steps)
    return 0 if all(held for _, held in steps.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
