"""`smooth.c` does what `smooth.py` does, to the last bit."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from driver import application
from driver.application import Settings
from driver.readings import read
from fake import Namespace
from native import NativeFunction

DATA = Path(__file__).resolve().parents[1] / "data"
HOUR = 3600

if not shutil.which("cc"):
    pytest.fail("there is no C compiler: apt install gcc libc6-dev", pytrace=False)


@pytest.fixture(scope="module", params=[(3600, 10_800), (600, 3600), (7, 50)])
def native(request, tmp_path_factory):
    step_s, window_s = request.param
    directory = tmp_path_factory.mktemp("smooth")
    application.compile_smooth(Settings(("x",), step_s=step_s, window_s=window_s, smooth="native"), directory)
    function = NativeFunction(directory / "smooth" / "smooth")
    yield step_s, window_s, function
    function.close()


@pytest.fixture
def pair(native):
    """Two namespaces with the same settings: one smooths in Python, the other in C."""
    step_s, window_s, function = native
    spaces = [Namespace("x", step_s=step_s, window_s=window_s) for _ in range(2)]
    spaces[1].functions["smooth"] = function
    return spaces


def both(pair, text: str) -> bool:
    """Appends the record to both, and runs smooth; whether C took it. What it takes must mean the same in Python."""
    outcomes = []
    for namespace in pair:
        namespace.append("raw/x", text)
        try:
            namespace.run()
            outcomes.append(True)
        except ValueError:
            outcomes.append(False)
        namespace.queue.clear()
    taken_by_python, taken_by_c = outcomes
    assert taken_by_python >= taken_by_c, text
    assert not taken_by_c or pair[0].logs["smooth/x"] == pair[1].logs["smooth/x"], text
    return taken_by_c


def test_on_real_readings(pair):
    readings = read("jfk", DATA / "jfk.csv")
    for t, v in list(zip(readings.times, readings.values))[:1000]:
        assert both(pair, json.dumps({"t": t, "v": v, "at": t + 60}))


@pytest.mark.parametrize("seed", range(4))
def test_on_jitter_gaps_duplicates_and_disorder(pair, seed):
    dice = random.Random(seed)
    t = dice.randrange(10**6)
    for _ in range(600):
        t += dice.choice([0, 1, 7, 60, 299, 300, 301, 3600, -500, 20_000]) * dice.choice([1, 1, 1, 2])
        v = dice.choice(
            [dice.gauss(0, 30), dice.uniform(-1e9, 1e9), dice.gauss(0, 1e-4), float(dice.randrange(-50, 50))]
        )
        sample = {"t": max(t, 0), "v": float(f"{v:.{dice.randint(1, 6)}g}"), "at": max(t, 0) + dice.choice([0, 5])}
        assert both(pair, json.dumps(sample, separators=dice.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])))


@pytest.mark.parametrize(
    "text",
    [
        '{"t":5,"v":1}',
        '{"v":1e2,"t":5}',
        '{"t":5,"v":-1.5E-3}',
        '{"t":5,"v":0.1,"unit":"F"}',
        ' {"t":5,"v":1} ',
        '{"t":0,"v":0}',
        '{"t":5,"v":1000000000}',
        '{"t":5,"v":123456.789012345}',
        '{"t":5,"v":-0.00005}',
    ],
)
def test_samples_that_both_take(pair, text):
    assert both(pair, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[]",
        "5",
        '"t"',
        '{"t":5}',
        '{"v":5}',
        '{"t":1.5,"v":1}',
        '{"t":5.0,"v":1}',
        '{"t":1e3,"v":1}',
        '{"t":-5,"v":1}',
        '{"t":5,"v":"1"}',
        '{"t":"5","v":1}',
        '{"t":5,"v":NaN}',
        '{"t":5,"v":1e10}',
        '{"t":5,"v":1,"at":4}',
        '{"t":5,"v":1,"at":5.5}',
        '{"t":5,"v":1}}',
        '{"t":5,"v":1},',
        '{"t":5 "v":1}',
        '{"t":5,"v":}',
        '{"t":5,"v":1.}',
        '{"t":5,"v":.5}',
        '{"t":5,"v":1e}',
        '{"t":5,"v":--1}',
        '{"t":5,"v":1,}',
        "{t:5,v:1}",
        '{"t":5,"v":01}',
    ],
)
def test_what_both_refuse(pair, text):
    assert not both(pair, text)
    with pytest.raises(ValueError):
        pair[0].append("raw/x", text)
        pair[0].run()


def test_an_earlier_record_that_is_no_sample_fails_both(pair):
    assert both(pair, '{"t":0,"v":1}')
    assert not both(pair, "oops")
    assert not both(pair, '{"t":25200,"v":1}')


def test_garbage_is_never_taken_by_one_alone(pair):
    dice = random.Random(5)
    alphabet = '{}[]":,.0123456789eE+-tva \\'
    for _ in range(3000):
        text = list('{"t":25200,"v":39.02,"at":25260}')
        for _ in range(dice.randint(1, 3)):
            text[dice.randrange(len(text))] = dice.choice(alphabet)
        both(pair, "".join(text))
        for namespace in pair:
            namespace.logs["raw/x"].clear()
            namespace.logs["smooth/x"].clear()
