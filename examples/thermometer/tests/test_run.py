"""The driver itself, without a host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import run
from driver.chart import Picture
from driver.readings import read
from driver.score import compare

EXAMPLE = Path(run.__file__).resolve().parent


def write(path: Path, rows: list[tuple[int, object]]) -> Path:
    path.write_text("".join(f"{t},{v}\n" for t, v in rows))
    return path


def driver(*args: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, EXAMPLE / "run.py", *map(str, args)], capture_output=True, text=True, timeout=600
    )


def test_records_come_as_they_would_live(tmp_path):
    a, b = (read(name, write(tmp_path / name, [(0, 1.0), (10, 2.0), (20, 3.0)])) for name in ("a", "b"))
    truth = read("truth", write(tmp_path / "truth", [(0, 7.0), (5, 8.0)]))
    records = [(log, json.loads(text)) for log, text in run.in_order_of_arrival([a, b], truth, 10)]
    assert [(log, sample["t"], sample.get("at")) for log, sample in records] == [
        ("raw/a", 0, None),
        ("raw/b", 0, None),
        ("raw/truth", 0, 10),
        ("raw/a", 10, None),
        ("raw/b", 10, None),
        ("raw/truth", 5, 15),
        ("raw/a", 20, None),
        ("raw/b", 20, None),
    ]


@pytest.mark.parametrize(
    "files, said",
    [
        ({"a": [(1, 1), (2, 2)], "truth": [(1, 1), (2, "warm")]}, "truth:2: the value 'warm' is not a number"),
        ({"a": [(1, 1), ("noon", 2)], "truth": [(1, 1), (2, 2)]}, "a:2: 'noon' is not a time"),
        ({"a": [(1, 1), (2, 2)], "truth": [(91, 1), (92, 2)]}, "no time is common to all files"),
        ({"a": [(1, 1)], "truth": [(1, 1), (2, 2)]}, "at least two are needed"),
    ],
)
def test_senseless_input_is_refused_before_anything_is_made(tmp_path, files, said):
    paths = {name: write(tmp_path / name, rows) for name, rows in files.items()}
    done = driver("--sensor", f"a={paths['a']}", "--truth", paths["truth"], "--out", tmp_path / "out")
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "out").exists()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "args, said",
    [
        (["--sensor", "a=x"], "belong together"),
        (["--truth", "x"], "belong together"),
        (["--sensor", "../a=x", "--truth", "x"], "write NAME=FILE"),
        (["--sensor", "truth=x", "--truth", "x"], "write NAME=FILE"),
        (["--sensor", "a", "--truth", "x"], "write NAME=FILE"),
        (["--sensor", "a=x", "--sensor", "a=y", "--truth", "x"], "write NAME=FILE"),
        (["--sensor", "a=/nowhere", "--truth", "/nowhere"], "/nowhere: No such file"),
        (["--step", "1w"], "not a duration"),
        (["--window", "0h"], "no time at all"),
        (["--step", "2h", "--window", "1h"], "shorter than the step"),
    ],
)
def test_wrong_usage_is_told(tmp_path, args, said):
    done = driver(*args, "--out", tmp_path / "out")
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("steps", [3, 500])
def test_a_picture_is_drawn_of_little_and_of_much(tmp_path, steps):
    truth = {3600 * n: float(n % 24) for n in range(steps)}
    sensors = {"a": {t: v + 1 for t, v in truth.items()}}
    errors = compare(dict(truth), sensors, [{"t": t, "v": v} for t, v in truth.items()], "0s")
    paths = Picture("Title", "°", 3600, 10_800, truth, truth, errors).draw(tmp_path / "picture")
    assert [path.suffix for path in paths] == [".png", ".svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG") and "Title" in paths[1].read_text()
