"""What files of readings may look like, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.readings import Readings, Refused, read

DATA = Path(__file__).resolve().parents[1] / "data"


def parse(tmp_path: Path, text: str | bytes) -> Readings:
    path = tmp_path / "some.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read("some", path)


@pytest.mark.parametrize(
    "text",
    [
        "10,1.5\n20,2.5\n",
        "epoch,value\n10,1.5\n20,2.5",
        "10 1.5\n20\t2.5\n",
        "time value\n10 1.5\n20 2.5\n",
        "2013-01-01 00:00:00, 10, 1.5\n2013-01-01 00:00:10, 20, 2.5\n",
        '"timestamp","epoch","value"\n"a","10","1.5"\n"b","20","2.5"\n',
        "# from the attic\n\n10,1.5\r\n\r\n20,2.5\r\n",
        "\ufeffepoch,value\n10.0,1.5\n20.9,2.5\n",
    ],
)
def test_every_accepted_form_gives_the_same_readings(tmp_path, text):
    readings = parse(tmp_path, text)
    assert (readings.times, readings.values) == ([10, 20], [1.5, 2.5])


def test_what_instruments_do_is_tolerated_and_counted(tmp_path):
    readings = parse(tmp_path, "10,1\n20,2\n20,2\n60,6\n30,3\n40,NA\n50,\n60,7\n70,nan\n80,8\n")
    assert readings.times == [10, 20, 30, 60, 80]
    assert readings.values == [1, 2, 3, 6, 8]
    assert (readings.missing, readings.duplicates, readings.contradictions, readings.disorder) == (3, 2, 1, 3)
    assert readings.gaps(10) == (2, 3)


@pytest.mark.parametrize(
    "row, what",
    [
        ("30,warm", "'warm' is not a number"),
        ("30,inf", "'inf' is not a number"),
        ("30,1e30", "between -1e9 and 1e9"),
        ("noon,3", "'noon' is not a time"),
        ("nan,3", "'nan' is not a time"),
        (",3", "'' is not a time"),
        ("-30,3", "between 1970 and 2100"),
        ("1357020000000,3", "milliseconds?"),
        ("30", "1 fields"),
        ("a,b,30,3", "4 fields"),
        ("2013-01-01,3", "'2013-01-01' is not a time"),
        ("\ufffd,3", "is not a time"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_with_its_place(tmp_path, row, what):
    with pytest.raises(Refused) as refused:
        parse(tmp_path, f"epoch,value\n10,1\n20,2\n{row}\n40,4\n")
    assert str(refused.value).startswith(f"{tmp_path / 'some.csv'}:4: ") and what in str(refused.value)


def test_only_the_first_row_may_be_a_header(tmp_path):
    with pytest.raises(Refused, match=":2: 'epoch' is not a time"):
        parse(tmp_path, "10,1\nepoch,value\n20,2\n")
    with pytest.raises(Refused, match=":1: the value 'value' is not a number"):
        parse(tmp_path, "10,value\n20,2\n")


def test_every_bad_row_is_told_up_to_a_bound(tmp_path):
    with pytest.raises(Refused) as refused:
        parse(tmp_path, "".join(f"{n},warm\n" for n in range(1, 31)))
    lines = str(refused.value).splitlines()
    assert len(lines) == 11 and lines[0].endswith("'warm' is not a number") and "20 more" in lines[-1]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(Refused, match=":2: "):
        parse(tmp_path, b"10,1\n\xff\xfe,2\n")


@pytest.mark.parametrize("text", ["", "epoch,value\n", "10,1\n", "10,NA\n20,NA\n"])
def test_too_little_is_refused(tmp_path, text):
    with pytest.raises(Refused, match="at least two"):
        parse(tmp_path, text)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(Refused, match="No such file"):
        read("some", tmp_path / "none.csv")


@pytest.mark.parametrize("usual, spacing", [(3600, 3600), (297, 300), (304, 300), (450, 450), (1, 1), (86_000, 86_400)])
def test_the_usual_spacing_is_round_if_it_nearly_is(tmp_path, usual, spacing):
    times = [0, *range(7, 50 * usual, usual), 99 * usual]
    assert parse(tmp_path, "".join(f"{t},1\n" for t in times)).spacing_s() == spacing


def test_the_data_here_is_what_its_provenance_says():
    ewr, jfk, lga = (read(name, DATA / f"{name}.csv") for name in ("ewr", "jfk", "lga"))
    assert [len(one.times) for one in (ewr, jfk, lga)] == [8702, 8706, 8706]
    assert (ewr.missing, jfk.missing, lga.missing) == (1, 0, 0)
    assert all(one.spacing_s() == 3600 and not one.duplicates + one.disorder for one in (ewr, jfk, lga))
    assert jfk.values[jfk.times.index(1_368_064_800)] == 13.1
