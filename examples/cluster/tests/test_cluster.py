"""The example as it is run, shorter. Needs `millrace` to be built: `cargo build` at the root, or set MILLRACE."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLE))

import chart


@pytest.mark.parametrize(("engine", "kept"), [("builtin", ""), ("nats", ", with their records in NATS")])
def test_three_hosts_whose_leaders_are_killed_have_what_one_host_has(tmp_path, engine, kept):
    command = [sys.executable, EXAMPLE / "run.py", "--days", "4", "--kills", "2", "--engine", engine, "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"all six topics are the same on all three hosts as on one{kept}, to the last byte" in done.stdout
    figures = json.loads((tmp_path / "cluster.json").read_text())
    assert len(figures["kills"]) == 2 and figures["predictions"] > 60
    assert (tmp_path / "cluster.png").stat().st_size > 20_000


def test_help_says_what_it_is():
    done = subprocess.run([sys.executable, EXAMPLE / "run.py", "--help"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "leaders are killed" in done.stdout


def test_the_names_of_killed_leaders_are_above_the_curves(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(chart.plt, "close", figures.append)
    found = {topic: [b'{"t": 1357000000, "v": 40.0}', b'{"t": 1359000000, "v": 41.0}'] for topic in chart.COLOURS}
    times = {topic: [10.0 + 0.01 * n for n in range(1400)] for topic in chart.COLOURS}
    chart.draw(found, times, [("campus", 13.0, 14.0), ("lab", 14.0, 20.0)], tmp_path / "picture.png")
    figures[0].canvas.draw()
    weather, growth = figures[0].axes
    assert [text.get_text().strip() for text in growth.texts] == ["campus", "lab"]
    for text in growth.texts:
        assert growth.transData.inverted().transform(text.get_window_extent())[0][1] > 1400
    assert "the leader is killed and away" in growth.get_legend_handles_labels()[1]
    assert weather.xaxis.get_major_formatter().get_offset() == "2013"
