"""What data tools need of the package: scalars of numpy and pandas, and tables in notebooks."""

from __future__ import annotations


import numpy
import pandas
import pytest

import millrace
from millrace import codecs


def test_scalars_of_numpy_and_pandas_can_be_appended(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Json())
    for value, expected in (
        (numpy.float32(1.5), b"1.5"),
        (numpy.int64(2**60), b"1152921504606846976"),
        (numpy.bool_(True), b"true"),
        (numpy.str_("x"), b'"x"'),
        ({"n": numpy.uint8(3), "none": pandas.NA, "no time": pandas.NaT}, b'{"n":3,"none":null,"no time":null}'),
        ([pandas.Timestamp("2026-01-01T00:00Z")], b'["2026-01-01T00:00:00+00:00"]'),
        (pandas.Series([1, 2]).max(), b"2"),
    ):
        log.append(value)
        assert ns.get("raw").data == expected
        if not isinstance(value, str):
            ns.append("raw", value)
            assert ns.get("raw").data == expected
    for refused in (numpy.array([1]), numpy.complex64(1), numpy.float32("nan"), object()):
        with pytest.raises(millrace.Invalid):
            ns.append("raw", refused)
        with pytest.raises(millrace.Invalid):
            log.append(refused)


def test_repairs_are_tables_in_notebooks(ns: millrace.Namespace) -> None:
    ns.append_many([("raw", b"%d" % n) for n in range(20)])
    plan = ns.repair({"raw": {**{n: "<b>" for n in range(1, 15)}, 15: None}}, reason="a < b")
    shown = plan._repr_html_()
    assert "plan of a repair of log raw: the first 10 of 15 records" in shown
    assert "&lt;b&gt;" in shown and "<b>" not in shown and "a &lt; b" in shown
    repair = plan.run()
    assert "repair 1 of log raw" in repair._repr_html_() and "<td>void</td><td>1</td>" in repair._repr_html_()
    shown = repair.diff()._repr_html_()
    assert "changes of a repair: the first 10 of 15 records" in shown and "<td>0</td><td>&lt;b&gt;</td>" in shown
    code = ns.repair(function={"f": "new.py"})
    assert "<td>code of</td><td>f</td>" in code._repr_html_()


def test_the_version_is_known() -> None:
    assert millrace.__version__.count(".") == 2
