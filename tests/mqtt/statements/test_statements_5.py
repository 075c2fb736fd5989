"""The statements of MQTT 5.0 that concern a server, each by its id."""

from __future__ import annotations

import cases_connect  # noqa: F401
import cases_publish  # noqa: F401
import cases_sessions  # noqa: F401
import cases_subscribe  # noqa: F401
import pytest
from conftest import Host
from talk import CASES, Case, shared_host

__all__ = ["shared_host"]


@pytest.mark.parametrize("statement", sorted(CASES[5]), ids=lambda name: f"MQTT-{name}")
def test_statement_of_5_0(shared_host: Host, statement: str) -> None:
    CASES[5][statement](shared_host, 5)


WITHOUT_ID = [cases_sessions.a_will_is_due_when_another_session_begins, cases_sessions.disconnect_may_not_begin_to_keep_a_session]


@pytest.mark.parametrize("case", WITHOUT_ID)
def test_what_has_no_id_in_5_0(shared_host: Host, case: Case) -> None:
    case(shared_host, 5)
