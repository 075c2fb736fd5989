"""Calls that come back within the step that migrates their object to a newer class."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import millrace

pytest.importorskip("cloudpickle")


def node(version: int, step: int) -> Any:
    """A version of a class, whose method adds `step`."""

    @millrace.shared(version=version)
    class Versioned:
        def __init__(self) -> None:
            self.value = 0

        def outer(self, relay: Any, me: Any) -> Any:
            return relay.call(me)

        @millrace.reentrant
        def add(self) -> int:
            self.value += step
            return self.value

        @classmethod
        def __migrate__(cls, fields: dict[str, Any], _version: int) -> dict[str, Any]:
            return fields

    return Versioned


@millrace.shared
class Relay:
    """Calls back whom it is told."""

    def call(self, back: Any) -> Any:
        return back.add()


def test_within_a_migration_calls_are_of_the_newer_class(binary: Path) -> None:
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    with millrace.connect() as farm, farm.Executor(workers=2) as executor:
        old, new = (farm.shared(node(*made), executor=executor) for made in ((1, 1), (2, 100)))
        relay = farm.shared(Relay, executor=executor)("relay")
        assert old("a").add() == 1 and old("b").add() == 1
        assert new("a").outer(relay, new("a")) == 101
        assert new("a").outer(relay, new("a")) == 201
        # A call of the older class does not run the code of the newer one.
        with pytest.raises(millrace.Conflict, match="MR7118"):
            new("b").outer(relay, old("b"))
        assert new("b").outer(relay, new("b")) == 101
