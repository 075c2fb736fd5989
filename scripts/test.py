#!/usr/bin/env python3
"""Runs all checks: format, one build, then lints and every test suite. If one step fails, the others are run nevertheless.
A test that fails beside others is run again, alone. If it passes then, it is listed as UNSTEADY and does not fail the run.

At the end, the script prints the minutes of each step and of each suite, and the ten slowest tests. It also writes them to
target/ledger/ledger.json. `make test` installs what is missing, then calls this script. Its arguments:

  test.py [--long] [STEP…]    only these steps: format web build device wheel lints packages examples http dashboard mqtt
                              java python rust

--long also runs the long forms of tests that `make test` keeps short; see LONG.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as XML
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "target" / "ledger"
BIN = ROOT / ".venv" / "bin"
SLOWEST = 10
# So many failed tests are tried again. More are no accident.
AGAIN_MAX = 5


# What is random or exhaustive, and how long it runs in `make test-all`: about two hours in all.
LONG = {
    "MILLRACE_EVERY_STEP": "1",
    "MILLRACE_STORM_RECORDS": "200000",
    "MILLRACE_LIAR_SECONDS": "300",
    "MILLRACE_SIM_SEEDS": "3000",
    "MILLRACE_DISK_SECONDS": "300",
    "MILLRACE_FUZZ_SECONDS": "60",
    "MILLRACE_DEVICE_SEEDS": "40",
    "MILLRACE_DEVICE_EVERY": "3",
    "MILLRACE_DEVICE_CUTS": "40",
    "MILLRACE_MQTT_CLIENTS": "10000",
}


def pytest(name: str, *arguments: str) -> list[str]:
    """A suite of pytest, which remembers what failed."""
    memory = ["-o", f"cache_dir={LEDGER / name}.cache"]
    return [str(BIN / "python"), "-m", "pytest", "-q", *memory, f"--junitxml={LEDGER / name}.xml", *arguments]


# A test file stays in one process, and so do its hosts. What schemathesis generates is lost in several processes.
SPREAD = ["-n", "4", "--dist", "loadfile"]
STEPS: dict[str, list[str]] = {
    "format": ["cargo", "fmt", "--all", "--check"],
    # The build embeds the pages.
    "web": ["scripts/web.sh", "check"],
    "build": ["scripts/cpu/cpu.py", "run", "cargo", "build", "--locked", "--workspace", "--all-targets"],
    "device": ["make", "-C", "device", "-j2", "CC=clang", "ARM=clang", "all", "test", "sizes"],
    "wheel": ["scripts/wheel.sh", "dev"],
    "lints": ["cargo", "clippy", "--quiet", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
    # They contain the program of `build` and the package of `wheel`, so each copy takes much room.
    "packages": pytest("packages", "-o", "tmp_path_retention_policy=failed", "tests/packages"),
    "examples": pytest("examples", *SPREAD, "examples"),
    "http": pytest("http", "tests/http"),
    "dashboard": pytest("dashboard", *SPREAD, "tests/dashboard"),
    "mqtt": pytest("mqtt", *SPREAD, "tests/mqtt"),
    # The tests of its objects compare them with those of Python, whose package `wheel` has installed.
    "java": ["env", f"MILLRACE_PYTHON={BIN / 'python'}", "mvn", "-B", "-ntp", "-f", "sdk/java/pom.xml", "package"],
    "python": pytest("python", *SPREAD, "-c", "sdk/python/pyproject.toml", "sdk/python/tests", "sdk/lithops/tests"),
    "rust": [str(BIN / "cargo-nextest"), "nextest", "run", "--locked", "--workspace", "--all-targets"],
}
# These wait more than they work, or work without waiting: they run side by side.
TOGETHER = ["lints", "packages", "examples", "http", "dashboard", "mqtt", "java", "python"]


def run(steps: list[str]) -> dict[str, tuple[float, bool]]:
    """Runs steps side by side; the seconds each took, and whether it held. One alone prints as it goes, several when they end."""
    alone = len(steps) == 1
    started = time.monotonic()
    under_way = {}
    for step in steps:
        print(f"\n── {step}: {' '.join(STEPS[step]).replace(str(ROOT) + '/', '')}", flush=True)
        output = None if alone else tempfile.TemporaryFile()
        streams = {"stdout": output, "stderr": subprocess.STDOUT if output else None}
        under_way[step] = subprocess.Popen(STEPS[step], cwd=ROOT, stdin=subprocess.DEVNULL, **streams), output
    ended = {}
    while under_way:
        time.sleep(0.1)
        for step, (child, output) in list(under_way.items()):
            if child.poll() is None:
                continue
            del under_way[step]
            seconds, held = time.monotonic() - started, child.returncode == 0
            if output:
                output.seek(0)
                sys.stdout.write(output.read().decode(errors="replace"))
            rest = f"; {' '.join(under_way)} still running" if under_way else ""
            print(f"── {step}: {'ok' if held else 'FAILED'} after {seconds:.0f} s{rest}", flush=True)
            ended[step] = seconds, held
    return ended


def cases() -> list[tuple[str, str, float, bool]]:
    """Suite, name, seconds and outcome of every test of this run, from the reports of its runners."""
    reports = sorted(LEDGER.glob("*.xml"))
    found = []
    for report in reports:
        for suite in XML.parse(report).iter("testsuite"):
            # The reports of Java are one for each class: java.CLASS.xml.
            name = suite.get("name") if report.stem == "rust" else report.stem.partition(".")[0]
            for case in suite.iter("testcase"):
                failed = case.find("failure") is not None or case.find("error") is not None
                if case.find("skipped") is None:
                    found.append((name, case.get("name"), float(case.get("time", 0)), failed))
    return found


def again(steps: dict[str, tuple[float, bool]], tests: list[tuple[str, str, float, bool]]) -> list[str]:
    """Runs the failed tests once more, with nothing beside them. Those that pass now are returned: they are unsteady."""
    failed: dict[str, list[tuple[str, str]]] = {}
    for suite, name, _, has_failed in tests:
        if has_failed:
            failed.setdefault(suite if suite in STEPS else "rust", []).append((suite, name))
    unsteady = []
    for step, found in failed.items():
        if step not in steps or steps[step][1] or step == "java" or sum(map(len, failed.values())) > AGAIN_MAX:
            continue
        if step == "rust":
            these = " + ".join(f"(binary_id(={suite}) & test(={name}))" for suite, name in found)
            command = [*STEPS[step], "-E", these]
        else:
            spread = set(SPREAD)
            command = [word for word in STEPS[step] if word not in spread and not word.startswith("--junitxml=")]
            command += ["--last-failed", "--last-failed-no-failures=none"]
        print(f"\n── again, alone: {step} {' '.join(name for _, name in found)}", flush=True)
        begun = time.monotonic()
        if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0:
            steps[step] = steps[step][0] + time.monotonic() - begun, True
            unsteady += [f"{suite} {name}" for suite, name in found]
    return unsteady


def ledger(steps: dict[str, tuple[float, bool]], took: float) -> None:
    """Prints where the time went, and what failed."""
    tests = cases()
    unsteady = again(steps, tests)
    suites, counts = Counter(), Counter()
    for suite, _, seconds, _ in tests:
        suites[suite] += seconds
        counts[suite] += 1
    print("\n── minutes of each step")
    for step, (seconds, held) in steps.items():
        print(f"{seconds / 60:7.2f}  {step}{'' if held else '  FAILED'}")
    print(f"{took / 60:7.2f}  in all; {' '.join(TOGETHER)} run at the same time")
    print("\n── minutes of each suite: the sum of its tests")
    for suite, seconds in suites.most_common():
        print(f"{seconds / 60:7.2f}  {suite} ({counts[suite]})")
    slowest = sorted(tests, key=lambda test: -test[2])[:SLOWEST]
    print(f"\n── the {len(slowest)} slowest tests, in seconds")
    for suite, name, seconds, _ in slowest:
        print(f"{seconds:7.1f}  {suite} {name}")
    for name in unsteady:
        print(f"UNSTEADY {name}: failed beside other tests, passed alone. This is a defect of the test or of the program: mend it")
    failed = [name for suite, case, _, failed in tests if failed and (name := f"{suite} {case}") not in unsteady]
    for name in failed:
        print(f"FAILED   {name}")
    written = {
        "steps": {step: round(seconds, 1) for step, (seconds, _) in steps.items()},
        "suites": {suite: round(seconds, 1) for suite, seconds in suites.items()},
        "slowest": [[suite, name, seconds] for suite, name, seconds, _ in slowest],
        "unsteady": unsteady,
    }
    (LEDGER / "ledger.json").write_text(json.dumps(written, indent=2) + "\n")
    told = f", {len(unsteady)} unsteady" if unsteady else ""
    print(f"\n{len(tests) - len(failed) - len(unsteady)} passed, {len(failed)} failed{told}")


def main() -> int:
    words = sys.argv[1:]
    if "--long" in words:
        words.remove("--long")
        os.environ.update({name: os.environ.get(name, value) for name, value in LONG.items()})
        # The upgrade from the release before is tried with its program.
        others = dict(STEPS)
        STEPS.clear()
        STEPS.update({"previous": ["scripts/release/previous.sh"], **others})
        # What takes an hour by itself does not hang.
        STEPS["rust"] += ["--profile", "long"]
        # It measures times, so nothing runs beside it.
        STEPS["timing"] = ["env", "MILLRACE_TIMING=1", "cargo", "test", "--locked", "-p", "millrace-security", "--test", "timing"]
    wanted = words or list(STEPS)
    if unknown := [step for step in wanted if step not in STEPS]:
        print(f"test: there is no step {unknown[0]!r}; the steps are {' '.join(STEPS)}", file=sys.stderr)
        return 2
    LEDGER.mkdir(parents=True, exist_ok=True)
    for report in [*LEDGER.glob("*.xml"), *(ROOT / "target/nextest").glob("*/junit.xml")]:
        report.unlink()
    # Rust of rustup before Debian's, as in the Makefile.
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    os.environ["PATH"] = f"{cargo}{os.pathsep}{os.environ['PATH']}"
    started = time.monotonic()
    steps: dict[str, tuple[float, bool]] = {}
    for step in (step for step in STEPS if step in wanted):
        if step not in steps:
            steps |= run([other for other in TOGETHER if other in wanted] if step in TOGETHER else [step])
    for report in (ROOT / "target/nextest").glob("*/junit.xml"):
        report.rename(LEDGER / "rust.xml")
    for report in (ROOT / "sdk/java/target/surefire-reports").glob("TEST-*.xml"):
        report.rename(LEDGER / f"java.{report.stem}.xml")
    ledger(steps, time.monotonic() - started)
    if "build" in steps:
        subprocess.run(["scripts/cpu/cpu.py", "show"], cwd=ROOT)
    return 0 if all(held for _, held in steps.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
