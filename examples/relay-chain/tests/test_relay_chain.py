"""The example as it is run, shorter. Needs `millrace` to be built: `cargo build` at the root, or set MILLRACE."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLE))

import chain_chart


def test_three_copies_through_two_outages_are_the_same(tmp_path):
    command = [sys.executable, EXAMPLE / "run.py", "--seconds", "8", "--rate", "250", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "2000 readings, 3 copies of each, none lost, none twice, all in order" in done.stdout
    assert done.stderr == ""  # What the hosts say is in files.
    figures = json.loads((tmp_path / "relay-chain.json").read_text())
    assert figures["readings"] == 2000 and 0 < figures["mean_ms"] <= figures["longest_s"] * 1000
    # A reading that was taken just after the cloud went had to wait for it.
    assert figures["longest_s"] > 1
    assert (tmp_path / "relay-chain.png").stat().st_size > 20_000


def test_help_says_what_it_is():
    done = subprocess.run([sys.executable, EXAMPLE / "run.py", "--help"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "catch up" in done.stdout


def test_the_picture_has_no_arrivals_during_an_outage(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(chain_chart.plt, "close", figures.append)
    device = [0.01 * n for n in range(1000)]
    edge = [moment + 0.001 for moment in device]
    cloud = [moment + 0.002 if not 2 < moment < 5 else 5.5 + 0.0001 * n for n, moment in enumerate(device)]
    chain_chart.draw({"device": device, "edge": edge, "cloud": cloud}, [("cloud", 2.0, 5.0)], tmp_path / "picture.png")
    delay = figures[0].axes[1]
    assert [(line.get_label(), line.get_linestyle()) for line in delay.get_lines()] == [("edge", "None"), ("cloud", "None")]
