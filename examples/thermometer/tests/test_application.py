"""The committed application file, and the one written for other sensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from driver import application, units
from driver.application import EXAMPLE, Settings


def test_the_file_here_is_the_one_that_is_written_for_the_data_here():
    assert (EXAMPLE / "millrace.toml").read_text() == application.text(Settings(("jfk", "lga")))


@pytest.mark.parametrize("smooth", application.SMOOTH)
def test_any_number_of_sensors_is_bound_and_declared(smooth):
    names = tuple(f"s{n}" for n in range(7))
    parsed = tomllib.loads(application.text(Settings(names, smooth=smooth, history=20_000)))
    assert parsed["functions"]["smooth"]["on"] == [f"raw/{name}" for name in (*names, "truth")]
    assert parsed["functions"]["predict"]["on"] == [f"smooth/{name}" for name in names]
    assert parsed["functions"]["train"]["monitor"] == parsed["functions"]["predict"]["monitor"]
    bound = {log for function in parsed["functions"].values() for log in function["on"]}
    assert bound < parsed["logs"].keys() and all(log["history"] == 20_000 for log in parsed["logs"].values())


def test_the_code_is_put_beside_the_file(tmp_path: Path):
    path = application.write(Settings(("a",)), tmp_path / "application")
    assert path.exists() and (path.parent / "functions" / "smooth.py").exists()


@pytest.mark.parametrize("text, s", [("90s", 90), ("5m", 300), ("1h", 3600), ("3d", 259_200)])
def test_durations(text, s):
    assert units.seconds(text) == s and units.seconds(units.duration(s)) == s


@pytest.mark.parametrize("text", ["", "5", "h", "1.5h", "-1h", "1w"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="not a duration"):
        units.seconds(text)
