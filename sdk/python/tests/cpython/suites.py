"""CPython's own tests of `threading`, `queue`, `multiprocessing` and `concurrent.futures`, for the modules with these names here.

The tests come from the package `test` of the interpreter that runs this, which some systems install separately; a suite that is not
installed does not run, nor do those of a version of Python for which there is no list. `refused.py` lists the tests that cannot pass, with the reasons.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millrace
from refused import REFUSED, VERSIONS


@pytest.fixture(scope="module", autouse=True)
def host(binary: Path, request: pytest.FixtureRequest) -> Iterator[millrace.Connection]:
    """The host of all classes of a module, which starts before a test counts threads."""
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(request.module)
    with millrace.connect() as connection:
        yield connection


def suite(name: str) -> Any:
    """A module of the package `test`; one without tests if it is not installed."""
    if sys.version_info[:2] not in VERSIONS:
        print(f"CPython's test.{name} does not run: refused.py is not for this version of Python", file=sys.stderr)
        return types.SimpleNamespace()
    try:
        found = importlib.import_module(f"test.{name}")
    except ImportError as error:
        print(f"CPython's test.{name} is not installed, and does not run: {error}", file=sys.stderr)
        return types.SimpleNamespace()
    # Workers may not see it.
    millrace.register_module(found)
    return found


def install(into: dict[str, Any], base: Any, name: str, *mixins: type, **attributes: Any) -> None:
    """Makes a class of tests of CPython one of a module here, for other classes."""
    refused = REFUSED.get(name, {})
    if base is None or isinstance(refused, str):
        return
    made = type(name, (base, *mixins, unittest.TestCase), attributes)
    for test, why in refused.items():
        if hasattr(made, test):
            setattr(made, test, unittest.skip(why)(getattr(made, test)))
    made.__module__ = into["__name__"]
    into[name] = made
