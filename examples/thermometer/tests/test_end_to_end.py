"""The whole application on a real host. Needs `millrace` to be built: `cargo build` at the root, or set MILLRACE."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import run
from driver import application
from driver.application import Settings
from driver.host import Host
from driver.readings import read
from fake import Namespace

EXAMPLE = Path(run.__file__).resolve().parent
DATA = EXAMPLE / "data"
DAYS = 45


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The first weeks of the data here."""
    directory = tmp_path_factory.mktemp("data")
    for name, source in (("jfk", "jfk"), ("lga", "lga"), ("truth", "ewr")):
        lines = (DATA / f"{source}.csv").read_text().splitlines(keepends=True)
        (directory / f"{name}.csv").write_text("".join(lines[: 24 * DAYS]))
    return {path.stem: path for path in directory.iterdir()}


@pytest.fixture(scope="module")
def expected(files) -> Namespace:
    """What the functions append when they run one after the other in memory."""
    namespace = Namespace(["jfk", "lga"], age_s=86_400, train_s=28 * 86_400)
    sensors, truth = [read(name, files[name]) for name in ("jfk", "lga")], read("truth", files["truth"])
    namespace.fed = run.in_order_of_arrival(sensors, truth, 6 * 3600)
    for log, text in namespace.fed:
        namespace.append(log, text)
    namespace.run_all()
    return namespace


def driver(*args: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, EXAMPLE / "run.py", *map(str, args)], capture_output=True, text=True, timeout=900
    )


def inputs(files: dict[str, Path]) -> list[str]:
    return ["--sensor", f"jfk={files['jfk']}", "--sensor", f"lga={files['lga']}", "--truth", str(files["truth"])]


@pytest.mark.parametrize("smooth", application.SMOOTH)
def test_every_form_of_smooth_gives_the_logs_that_one_run_after_the_other_gives(tmp_path, files, expected, smooth):
    done = driver(*inputs(files), "--out", tmp_path, "--namespace", tmp_path / "namespace", "--smooth", smooth)
    assert done.returncode == 0, done.stderr
    host = Host(tmp_path / "namespace", tmp_path / "application" / "millrace.toml")
    assert_as_expected(host, expected)
    figures = json.loads((tmp_path / "thermometer.json").read_text())["against the smoothed truth"]
    assert all(figures["prediction"]["mae"] < other["mae"] for name, other in figures.items() if name != "prediction")
    assert (tmp_path / "thermometer.png").stat().st_size > 20_000 and (tmp_path / "thermometer.svg").exists()


def test_a_host_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path, files, expected):
    settings = Settings(("jfk", "lga"), python=sys.executable, namespace=str(tmp_path / "namespace"))
    file = application.write(settings, tmp_path / "application")
    # All of it waits for the first host; each is killed when an eighth more is done.
    host = Host(tmp_path / "namespace", file)
    host.call("up", "--file", str(file))
    host.append(expected.fed, lambda count: None)
    all_smooth = len(expected.logs["smooth/jfk"])
    for life in range(6):
        with host:
            if life < 5:
                while host.rows("log", "stat", "smooth/jfk")[0]["latest"] < (life + 1) * all_smooth // 8:
                    assert host.process.poll() is None, "the host ended by itself"
                host.process.kill()
                assert life or any(host.pending().values()), "the first host should have been killed at work"
            else:
                host.wait_idle(900, lambda pending: None)
    assert_as_expected(host, expected)


def assert_as_expected(host: Host, expected: Namespace) -> None:
    for log in ("smooth/jfk", "smooth/lga", "smooth/truth"):
        assert [row["data"] for row in host.rows("log", "get", log, "--all")] == expected.logs[log], log
    for log in ("model", "prediction"):
        assert_alike(host.records(log), expected.values(log))


def assert_alike(got: object, wanted: object) -> None:
    """The same records, but for the last bits of a regression, which depend on how many threads share it."""
    assert type(got) is type(wanted)
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        for key in wanted:
            assert_alike(got[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted):
            assert_alike(one, other)
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, abs=2e-4)
    else:
        assert got == wanted


def test_anyones_data(tmp_path):
    """Three sensors that report at odd seconds, with gaps, rows twice, rows out of order; a truth every ten minutes."""
    dice = random.Random(3)
    for name, spacing_s, weight in (("roof", 300, 1.0), ("barn", 300, 0.5), ("well", 600, 0.1), ("truth", 600, 0.7)):
        rows = []
        for t in range(1_600_000_000, 1_600_000_000 + 8 * 86_400, spacing_s):
            if dice.random() < 0.97:
                at = t + dice.randint(-4, 4)
                rows.append(f"{at} {20 + weight * 10 * ((t // 3600 % 24) - 12) / 12 + dice.gauss(0, 0.2):.2f}")
        rows += dice.sample(rows, 5)
        first = dice.randrange(len(rows) - 1)
        rows[first], rows[first + 1] = rows[first + 1], rows[first]
        (tmp_path / name).write_text("\n".join(rows))
    sensors = [arg for name in ("roof", "barn", "well") for arg in ("--sensor", f"{name}={tmp_path / name}")]
    done = driver(*sensors, "--truth", tmp_path / "truth", "--lag", "1h", "--refit", "1d", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "of 10m" in done.stdout and "5 twice" in done.stdout and "out of order" in done.stdout
    figures = json.loads((tmp_path / "out" / "thermometer.json").read_text())["against the smoothed truth"]
    assert figures["prediction"]["steps"] > 500
    assert all(figures["prediction"]["mae"] < other["mae"] for name, other in figures.items() if name != "prediction")


def test_a_namespace_that_exists_is_not_touched(tmp_path, files):
    (tmp_path / "namespace").mkdir()
    (tmp_path / "namespace" / "mine").write_text("dear")
    done = driver(*inputs(files), "--out", tmp_path / "out", "--namespace", tmp_path / "namespace")
    assert done.returncode == 2 and "exists" in done.stderr
    assert [path.name for path in (tmp_path / "namespace").iterdir()] == ["mine"]
