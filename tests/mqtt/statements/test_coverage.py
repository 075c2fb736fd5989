"""Every statement of both versions has a case, or a reason why not."""

from __future__ import annotations

from pathlib import Path

import cases_connect  # noqa: F401
import cases_publish  # noqa: F401
import cases_sessions  # noqa: F401
import cases_subscribe  # noqa: F401
import pytest
from elsewhere import ELSEWHERE, without_a_case
from ids import of_version
from talk import CASES

HERE = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("level", "count"), [(4, 141), (5, 251)])
def test_every_statement_is_accounted_for(level: int, count: int) -> None:
    ids = of_version(level)
    assert len(ids) == len(set(ids)) == count
    cases, others = set(CASES[level]), set(without_a_case(level))
    assert sorted(cases & others) == []
    assert sorted(set(ids) - cases - others) == [], "statements that nobody looks after"
    assert sorted((cases | others) - set(ids)) == [], "no such statements"


@pytest.mark.parametrize("level", [4, 5])
def test_tests_that_are_named_are_there(level: int) -> None:
    for named in ELSEWHERE[level].values():
        file, test = named.split("::")
        assert f"def {test}(" in (HERE / file).read_text(), named
