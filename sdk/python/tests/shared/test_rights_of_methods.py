"""Methods of user classes for the holder of a capability: a right on the object is enough for arguments that no worker has to unpickle."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Host

import millrace

pytest.importorskip("cloudpickle")


@millrace.shared
class Shelf:
    """Has books."""

    def __init__(self) -> None:
        self.books: list[Any] = []

    def put(self, *books: Any) -> int:
        self.books.extend(books)
        return len(self.books)

    @millrace.readonly
    def count(self, of: Any = None) -> int:
        return len(self.books) if of is None else self.books.count(of)


class Trap:
    """Tells whether anybody opened it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_a_right_on_the_object_is_enough_for_plain_arguments(
    binary: Path, host: Callable[..., Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def issued(name: str, rights: str) -> Path:
        path = tmp_path / f"{name}.cap"
        command = [str(binary), "-n", str(tmp_path / "ns"), "cap", "issue", "--allow", rights, "--out", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        return path

    with millrace.create(tmp_path / "ns", durability="memory") as namespace:
        running = host(namespace)
        reader, caller = issued("reader", "read=object:Shared/shelf"), issued("caller", "read,call=object:Shared/shelf")
        other = issued("other", "read,call,create=object:Shared/other")
        with millrace.connect(tmp_path / "ns") as farm, farm.Executor(workers=1):
            millrace.register_module(__import__(__name__))
            shelf = farm.shared(Shelf)("shelf")
            assert shelf.put("a", "b") == 2
            reference = pickle.dumps(shelf)

            def held(file: Path) -> Any:
                monkeypatch.setenv("MILLRACE_CAPABILITY", str(file))
                farm = millrace.connect(running.address)
                theirs = pickle.loads(reference)
                theirs._space = farm.space
                return farm, theirs

            farm_of_reader, read = held(reader)
            assert read.count() == 2 and read.count("a") == 1 and read.count((1, [None, 2.5, {"k": b"v"}])) == 0
            opened = tmp_path / "opened"
            for method, argument in ((read.count, Trap(opened)), (read.count, [{"deep": (Trap(opened),)}]), (read.put, "c")):
                with pytest.raises(millrace.Error) as denied:
                    method(argument)
                assert denied.value.code == "MR6132", denied.value
            farm_of_caller, call = held(caller)
            assert call.put("c") == 3
            with pytest.raises(millrace.Error) as denied:
                call.put(Trap(opened))
            assert denied.value.code == "MR6132" and not opened.exists()
            # The class of the object, and no other, nor another record of it.
            for place in range(5):
                wrong = pickle.loads(reference)
                wrong._space = farm_of_caller.space
                about = list(wrong._about)
                about[place] = about[place] + (b"x" if place == 4 else 1 if place in (2, 3) else "x")
                wrong._about = tuple(about)
                with pytest.raises(millrace.Error) as denied:
                    wrong.put("d")
                assert denied.value.code == "MR6132", (place, denied.value)
            # It creates no object: the constructor's arguments might be pickles.
            farm_of_other, _ = held(other)
            made = farm.shared(Shelf)("other")
            made._space, made._incarnation = farm_of_other.space, 0
            with pytest.raises(millrace.Error) as denied:
                made.put("e")
            assert denied.value.code == "MR6132"
            assert shelf.count() == 3
            for connection in (farm_of_reader, farm_of_caller, farm_of_other):
                connection.close()
