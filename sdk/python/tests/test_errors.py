"""The exception tree, and that every code of the catalogue has its place in it."""

from __future__ import annotations

import pickle
import tomllib
import traceback

import pytest
from conftest import ROOT, python

import millrace
from millrace import _native
from millrace._worker import error_of
from millrace.aio._wire import Tunnel

CATALOGUE = tomllib.loads((ROOT / "spec/errors.toml").read_text())


def test_the_catalogue_is_the_one_in_the_repository() -> None:
    assert sorted(_native.codes()) == sorted(CATALOGUE)


def test_after_these_errors_a_request_goes_through_another_connection() -> None:
    assert Tunnel._lost == {"MR6121", "MR6122", "MR6123", "MR6127", "MR6008", "MR6009", "MR6053"}


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_code_has_a_class_a_cause_and_a_remedy(code: str) -> None:
    error = _native.error(code, "this went wrong")
    assert type(error) is not millrace.Error
    assert (error.code, error.detail, str(error)) == (code, "this went wrong", f"{code}: this went wrong")
    row = CATALOGUE[code]
    assert (error.cause, error.remedy) == (row["cause"], row.get("remedy_python", row["remedy"]))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and (again.args, str(again)) == (error.args, str(error))
    assert type(error).__module__ == "millrace"


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("MR2101", (millrace.NotFound, LookupError)),
        ("MR2104", (millrace.Gone, millrace.NotFound)),
        ("MR1001", (millrace.Invalid, ValueError)),
        ("MR2103", (millrace.Conflict,)),
        ("MR2106", (millrace.TimedOut, TimeoutError)),
        ("MR2005", (millrace.Denied, PermissionError)),
        ("MR2008", (millrace.StorageFailed,)),
        ("MR2010", (millrace.Damaged, millrace.StorageFailed)),
        ("MR3110", (millrace.FunctionFailed,)),
        ("MR5002", (millrace.Unavailable, ConnectionError)),
        ("MR6101", (millrace.Missing, ImportError)),
    ],
)
def test_errors_are_also_what_python_programs_expect(code: str, kinds: tuple[type[BaseException], ...]) -> None:
    assert isinstance(error_of(code, "x"), (millrace.Error,)) and all(isinstance(error_of(code, "x"), k) for k in kinds)


def test_tracebacks_show_the_remedy(ns: millrace.Namespace) -> None:
    try:
        ns.get("missing")
    except millrace.Error as error:
        shown = "".join(traceback.format_exception(error))
        assert shown.rstrip().endswith(error.remedy) and "millrace.NotFound: MR2101: no log 'missing'" in shown


def test_busy_says_when_to_come_again(ns: millrace.Namespace, tmp_path: object) -> None:
    error = _native.error("MR2019", "full")
    assert isinstance(error, millrace.Busy) and error.retry_after == 0.1


def test_without_the_native_module_functions_work_and_the_rest_says_what_to_do() -> None:
    program = """
import sys
sys.modules["millrace._native"] = None
import millrace

@millrace.function(on="raw")
def f(record: millrace.Record, ctx: millrace.Context) -> None:
    pass

assert f.__millrace__.on == ("raw",) and millrace.Record("raw", 1, b"2").json() == 2
for use in (lambda: millrace.open("x"), lambda: millrace.Namespace):
    try:
        use()
    except ImportError as error:
        print(error.code, error.cause, error.remedy, isinstance(error, millrace.Missing))
"""
    done = python("-c", program)
    entry = CATALOGUE["MR6101"]
    line = f"MR6101 {entry['cause']} {entry['remedy']} True\n"
    assert (done.stdout, done.stderr) == (line * 2, "")


def test_importing_for_a_function_loads_nothing_but_the_worker() -> None:
    program = "import sys, millrace; print(sorted(m for m in sys.modules if m.startswith('millrace')))"
    assert python("-c", program).stdout == (
        "['millrace', 'millrace._errors', 'millrace._errors._explain', 'millrace._work', 'millrace._work._channel', "
        "'millrace._work._streams', 'millrace._work._tables', 'millrace._worker']\n"
    )
