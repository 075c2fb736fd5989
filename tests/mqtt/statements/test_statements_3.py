"""The statements of MQTT 3.1.1 that concern a server, each by its id."""

from __future__ import annotations

import cases_connect  # noqa: F401
import cases_publish  # noqa: F401
import cases_sessions  # noqa: F401
import cases_subscribe  # noqa: F401
import pytest
from conftest import Host
from talk import CASES, shared_host

__all__ = ["shared_host"]


@pytest.mark.parametrize("statement", sorted(CASES[4]), ids=lambda name: f"MQTT-{name}")
def test_statement_of_3_1_1(shared_host: Host, statement: str) -> None:
    CASES[4][statement](shared_host, 4)
