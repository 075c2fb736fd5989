"""The example as it is run. Needs `millrace`, GCC for ARM, QEMU and clang: `scripts/setup.sh test` installs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1]


def test_a_reading_is_traced_to_the_cloud_and_a_wrong_day_is_corrected(tmp_path):
    command = [sys.executable, EXAMPLE / "run.py", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the firmware of kitchen and its twin thermometer.mean did the same in 96 runs" in done.stdout
    # A correction replays the runs of the board, and reaches the copy of its readings in the cloud.
    plan = done.stdout.split("== plan")[1].split("\n== ")[0]
    assert "triggered by corrected edge:kitchen/raw@49..72" in plan and "cloud:kitchen/raw 24 records" in plan
    titles = ("== predictions\n", "== predictions, after the repair\n")
    before, after = ([json.loads(line) for line in done.stdout.split(title)[1].splitlines()[:4]] for title in titles)
    assert [row["day"] for row in before] == [row["day"] for row in after] == [2, 3, 4, 5]
    # What was predicted from the days before the wrong one is as it was.
    assert before[:2] == after[:2] and before[2] != after[2] and before[3] != after[3]
    # On each day it is a little warmer, which only the corrected day shows.
    means = [row["mean"] for row in after]
    assert max(means) - min(means) < 1 < max(row["mean"] for row in before) - min(row["mean"] for row in before)


def test_help_says_what_it_is():
    done = subprocess.run([sys.executable, EXAMPLE / "run.py", "--help"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "microcontroller" in done.stdout
