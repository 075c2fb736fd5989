"""`pushes` -> `graded`: runs the tests of the assignment on a submission, with the Go toolchain of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

#: What a submission does not decide: its tests, and its module.
ASSIGNMENT = Path(__file__).resolve().parent / "assignment"
OUTPUT_MAX_CHARS = 4000
#: A sandbox has 64 MiB for temporary files, of which the compiled standard library takes 43.
CACHE = Path(tempfile.gettempdir()) / "go-cache"
CACHE_FREE_MIN_BYTES = 8 << 20
#: Without debugging information, which would take another 15 MiB. The tests are run even if these very files were tested before.
COMMAND = ["test", "-json", "-count=1", "-vet=off", "-timeout=30s", "-gcflags=all=-dwarf=false", "-ldflags=-w", "."]


def go_grader(record: Record, ctx: Context) -> None:
    push = record.json()
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as place:
        for name, text in push["files"].items():
            if name.endswith(".go") and not name.endswith("_test.go"):
                (Path(place) / Path(name).name).write_text(text)
        for name in ("go.mod", "lru_test.go"):
            shutil.copy(ASSIGNMENT / name, place)
        ctx.table("results")[push["submission"]] = outcome(go_test(place))
    ctx.append("graded", {"submission": push["submission"]})


def go_test(place: str) -> list[dict]:
    """The events of `go test -json`, which are described in `go doc test2json`."""
    if CACHE.exists() and shutil.disk_usage(CACHE).free < CACHE_FREE_MIN_BYTES:
        shutil.rmtree(CACHE)
    # Nothing is downloaded: the function has no network.
    places = {"GOCACHE": str(CACHE), "GOPATH": f"{place}/.go", "GOTMPDIR": place}
    environment = {**os.environ, **places, "GOTOOLCHAIN": "local", "GOPROXY": "off", "CGO_ENABLED": "0"}
    done = subprocess.run([os.environ["GO"], *COMMAND], cwd=place, env=environment, capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    # Go before 1.24 tells only in words that a submission does not compile, with a place in one of its files.
    if not events and not re.search(r"\.go:\d+:\d+: ", done.stderr):
        # It is not the submission that is at fault: the run fails, and is tried again.
        raise RuntimeError(f"go test printed no events: {done.stderr}")
    return [*events, {"Action": "output", "Output": done.stderr}]


def outcome(events: list[dict]) -> dict:
    """What each test ended with, and what it and the compiler printed. No times: grading again gives the same."""
    tests: dict[str, dict] = {}
    output = ""
    for event in events:
        name, action = event.get("Test"), event["Action"]
        if name:
            test = tests.setdefault(name, {"outcome": "unfinished", "output": ""})
            if action in ("pass", "fail", "skip"):
                test["outcome"] = action
            elif action == "output" and not event["Output"].startswith(("=== ", "--- ")):
                test["output"] = (test["output"] + event["Output"])[:OUTPUT_MAX_CHARS]
        elif action in ("output", "build-output") and not event["Output"].startswith(("FAIL", "PASS", "ok")):
            output = (output + event["Output"])[:OUTPUT_MAX_CHARS]
    return {"tests": tests, "output": output}
