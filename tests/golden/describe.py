#!/usr/bin/env python3
"""Says what a golden namespace holds, as a given binary sees it: tests/golden/describe.py MILLRACE DIR

DIR is what a `.tar.gz` here was unpacked to. `make.sh` writes the answer of the binary of that time beside the archive; the
test `formats` asks today's binary and expects the same. What a later version adds to its answers is left out.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

LOG = ["history", "earliest", "latest", "incarnation", "functions"]
FUNCTION = ["triggered", "done", "pending", "runtime", "on", "ordered", "concurrency", "monitor", "retries", "dead_letter", "code"]
RUN = ["id", "function", "log", "seqno", "cause", "triggered", "ended", "appends"]


def main(millrace: str, place: Path) -> None:
    environment = {**os.environ, "MILLRACE_LISTEN": "none", "XDG_CONFIG_HOME": str(place / "config")}
    environment.pop("MILLRACE_NAMESPACE", None)

    def ask(*words: str) -> list[dict]:
        done = subprocess.run([millrace, "--json", *words], cwd=place, env=environment, check=True, stdout=subprocess.PIPE)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def some(answer: dict, keys: list[str]) -> dict:
        return {key: answer[key] for key in keys}

    # As it lies, before anything opens it.
    first, body = (place / ".millrace/manifest").read_text().split("\n", 1)
    manifest = json.loads(body)
    lies = {"format": int(first.split()[1]), **some(manifest, ["namespace", "epoch", "segment_bytes", "first_segment"])}

    def record(answer: dict) -> dict:
        data = answer["data"] if "data" in answer else answer["base64"]  # of what is no text
        sha256 = hashlib.sha256(data.encode()).hexdigest()
        return {**some(answer, ["seqno", "id", "time", "cause"]), "sha256": sha256}

    def log(answer: dict) -> dict:
        records = ask("log", "get", answer["name"], "--all") if answer["latest"] else []
        return {**some(answer, LOG), "records": [record(one) for one in records]}

    def run(answer: dict) -> dict:
        # Whether one that has not ended was begun is told by its attempts.
        state = "pending" if answer["state"] == "started" else answer["state"]
        error = answer["error"] and answer["error"]["code"]
        return {**some(answer, RUN), "state": state, "attempts": len(answer["attempts"]), "error": error}

    code = place / ".millrace/functions"
    files = [path for path in sorted(code.rglob("*")) if path.is_file()]
    description = {
        **lies,
        "logs": {one["name"]: log(one) for one in ask("log", "ls", "--internal")},
        "functions": {one["name"]: some(one, FUNCTION) for one in ask("function", "ls")},
        "runs": sorted((run(one) for one in ask("run", "ls")), key=lambda run: run["triggered"] + run["id"]),
        "code": {str(path.relative_to(code)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    print(json.dumps(description, indent=1, sort_keys=True))


main(sys.argv[1], Path(sys.argv[2]))
