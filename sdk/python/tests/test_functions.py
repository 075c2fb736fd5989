"""Functions: plain functions that a host runs, deployed from the program that defines them."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import linecache
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import PATIENCE_S, Host

import millrace

Start = Callable[..., Host]
Write = Callable[[str, str], ModuleType]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written: list[str] = []

    def write(name: str, text: str) -> ModuleType:
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text("from __future__ import annotations\nimport millrace\n" + textwrap.dedent(text))
        written.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


SMOOTH = """
    @millrace.function(on="raw", retries=0, timeout=120)
    def smooth(record: millrace.Record, ctx: millrace.Context) -> None:
        before = 0
        try:
            before = ctx.get("clean", ctx.latest("clean") or 7).json()
        except millrace.NotFound as error:
            assert error.code == "MR2105"
        ctx.append("clean", before + record.json())
        print("smoothed", record.seqno)
"""


SLOW = """
    import time

    @millrace.function(on="raw", timeout=3600)
    def slow(record: millrace.Record, ctx: millrace.Context) -> None:
        time.sleep(3600)
"""


@pytest.mark.parametrize("way", ["files", "host"])
def test_a_run_is_cancelled(way: str, ns: millrace.Namespace, host: Start, write: Write) -> None:
    ns.deploy(write("slow_it", SLOW).slow)
    place = ns if way == "files" else millrace.open(host(ns).address)
    place.append("raw", b"x")
    run = place.runs(function="slow")[0].id
    place.cancel_run(run)
    assert place.run(run).state == "cancelled"
    place.wait_idle(120)
    for id, kind, code in [
        (run, millrace.Conflict, "MR3141"),
        ("1-0-1", millrace.NotFound, "MR3007"),
        ("odd", millrace.Invalid, "MR1005"),
    ]:
        with pytest.raises(kind, match=code):
            place.cancel_run(id)


def test_a_decorated_function_runs_unchanged_in_a_worker(ns: millrace.Namespace, host: Start, write: Write) -> None:
    smooth = write("smooth_it", SMOOTH).smooth
    ns.create_log("clean")
    deployed = ns.deploy(smooth)
    assert (deployed.name, deployed.change) == ("smooth", "created")
    assert ns.deploy(smooth).change == "unchanged" and ns.deploy(smooth, retries=1).change == "updated"
    remote = millrace.open(host(ns).address)
    for value in (1, 2, 3):
        remote.append("raw", value)
    ns.wait_idle(120)
    remote.wait_idle(120)
    assert [record.json() for record in ns.range("clean")] == [1, 3, 6]
    stat = ns.function("smooth")
    assert (stat.triggered, stat.done, stat.pending, stat.on, stat.runtime) == (3, 3, 0, ("raw",), "python")
    assert [function.name for function in remote.functions()] == ["smooth"]
    runs = ns.runs(function="smooth", state="done")
    assert [run.record.seqno for run in runs] == [3, 2, 1] and runs[0].output == "smoothed 3\n"
    assert runs[0].appends[0].log == "clean" and runs[0].ended is not None and runs[0].attempts[0].attempt == 1
    assert ns.run(runs[0].id) == runs[0] == remote.run(runs[0].id)
    assert remote.runs(limit=2) == runs[:2]
    assert ns.get("clean", 3).cause == runs[0].id and runs[0].caused_by is None
    assert ns.why("smooth").reasons[0].reason == "idle"
    assert "smooth" in ns._repr_html_()
    remote.close()


def test_a_function_that_fails_leaves_a_dead_letter(ns: millrace.Namespace, host: Start, write: Write) -> None:
    fails = write(
        "fails_it",
        """
        @millrace.function(on=["raw"], retries=0, dead_letter="dead", env={"WHY": "because"})
        def fails(record, ctx):
            import os
            raise ValueError(os.environ["WHY"])
        """,
    ).fails
    ns.deploy(fails)
    host(ns)
    ns.append("raw", b"bad")
    assert b"bad" in ns.get("dead", 1, wait=120).data or ns.latest("dead") == 1
    run = ns.runs(state="dead")[0]
    assert run.error is not None and run.error[0] == "MR3110" and "ValueError: because" in run.error[1]
    ns.remove_function("fails")
    assert ns.functions() == []
    with pytest.raises(millrace.NotFound, match="MR3001"):
        ns.function("fails")


def test_a_streamed_function_learns_its_seqnos_and_appends_nothing_twice(
    ns: millrace.Namespace, host: Start, write: Write
) -> None:
    told = write(
        "told_it",
        """
        from typing import Optional

        @millrace.function(on="raw", streamed=True, retries=1, backoff=0.001)
        def told(record: millrace.Record, ctx: millrace.Context) -> None:
            seqno: Optional[int] = ctx.append("clean", ctx.random(8).hex())
            if ctx.attempt == 1:
                raise ValueError("once")
            key: str = ctx.idempotency_key
            ctx.append("clean", [seqno, key])
        """,
    ).told
    ns.create_log("clean")
    ns.append("clean", "before")
    ns.deploy(told)
    host(ns)
    ns.append("raw", b"x")
    ns.wait_idle(30)
    run = ns.runs(function="told")[0]
    assert (run.state, len(run.attempts)) == ("done", 2)
    assert ns.latest("clean") == 3 and ns.get("clean", 3).json() == [2, run.id]
    assert ns.get("clean", 2).cause == ns.get("clean", 3).cause == run.id


def test_a_function_of_a_package_is_deployed_with_it(ns: millrace.Namespace, write: Write, tmp_path: Path) -> None:
    write("farm.units", "def celsius(f): return (f - 32) / 1.8\n")
    module = write(
        "farm.convert",
        """
        from farm.units import celsius

        @millrace.function(on="raw", name="to-celsius", concurrency=4)
        def convert(record, ctx):
            ctx.append("raw", celsius(record.json()))
        """,
    )
    with pytest.raises(millrace.FunctionFailed, match="MR3115"):
        ns.deploy(module.convert)
    assert ns.deploy(module.convert, source=str(tmp_path)).name == "to-celsius"
    with pytest.raises(millrace.Invalid, match="MR6103"):
        ns.deploy(module.convert, source="/usr/lib")


def test_what_cannot_be_deployed_says_why(ns: millrace.Namespace, write: Write) -> None:
    def inner(record: millrace.Record, ctx: millrace.Context) -> None: ...

    typed: dict[str, Callable[[millrace.Record, millrace.Context], None]] = {}
    exec("def typed(record, ctx): pass", typed)
    for handler in (inner, lambda record, ctx: None, print, typed["typed"], functools.partial(print)):
        with pytest.raises(millrace.Invalid, match="MR6103"):
            ns.deploy(handler)
    smooth = write("smooth_that", SMOOTH).smooth
    for settings, code in (
        ({"on": "missing"}, "MR2101"),
        ({"concurrency": 1000}, "MR3002"),
        ({"timeout": -1}, "MR3002"),
        ({"colour": "red"}, "MR3002"),
        ({"name": "a/b"}, "MR1002"),
    ):
        with pytest.raises(millrace.Error, match=code):
            ns.deploy(smooth, **settings)
    assert ns.functions() == []


def test_a_full_queue_is_busy_until_there_is_room(ns: millrace.Namespace, host: Start, write: Write) -> None:
    slow = write("slow_it", "def slow(record, ctx): pass\n").slow
    ns.deploy(slow, on="raw", pending_max=1)
    ns.append("raw", b"1")
    with pytest.raises(millrace.Busy, match="MR2019") as refused:
        ns.append("raw", b"2")
    after = refused.value.retry_after
    assert after is not None and 0.1 <= after < 0.2  # not the same for everybody
    remote = millrace.open(host(ns).address)
    for place in (ns, remote):
        place.append("raw", b"2", patience=120)
        place.append_many([("raw", b"3")] * 5, patience=120)
    ns.wait_idle(120)
    assert ns.latest("raw") == 13
    remote.close()


def test_the_decorator_changes_nothing_about_the_function() -> None:
    def f(record: millrace.Record, ctx: millrace.Context) -> int:
        return int(record.json()) + 1

    decorated = millrace.function(on=("a", "b"), concurrency=3, timeout=1.5)(f)
    assert decorated is f and f(millrace.Record("a", 1, b"41"), None) == 42  # type: ignore[arg-type]
    settings = getattr(f, "__millrace__")
    assert settings.on == ("a", "b") and settings.options == {"concurrency": 3, "ordered": False, "timeout": 1.5}


def test_millrace_toml_names_a_decorated_function_and_needs_nothing_installed(
    tmp_path: Path, binary: Path, host: Start
) -> None:
    (tmp_path / "smooth.py").write_text("import millrace\n" + textwrap.dedent(SMOOTH))
    # The interpreter under the virtual environment, where this package is not installed.
    bare = Path(sys.base_prefix) / "bin/python3"
    assert subprocess.run([bare, "-c", "import millrace"], cwd="/", stderr=subprocess.DEVNULL, check=False).returncode
    (tmp_path / "millrace.toml").write_text(
        f"""
        [namespace]
        durability = "memory"
        [logs.raw]
        [logs.clean]
        [functions.smooth]
        runtime = "python"
        code = "smooth.py"
        handler = "smooth:smooth"
        on = ["raw"]
        python = "{bare}"
        """
    )
    subprocess.run([binary, "up"], cwd=tmp_path, check=True, capture_output=True)
    with millrace.open(tmp_path) as ns:
        host(ns)
        ns.append_many([("raw", 1), ("raw", 2)])
        assert ns.get("clean", 2, wait=120).json() == 3


ALONE = """
    import millrace

    @millrace.function(on="raw")
    def double(record, ctx):
        ctx.append("raw", 2)

    {guard}:
        ns = millrace.open({address!r})
        ns.append("raw", 1)
        print(ns.deploy(double).name)
"""


def test_a_program_that_deploys_its_own_function_is_not_run_by_the_deployment(ns: millrace.Namespace, tmp_path: Path) -> None:
    def run(guard: str, more: str = "") -> subprocess.CompletedProcess[str]:
        program = tmp_path / "alone.py"
        text = textwrap.dedent(ALONE.format(guard=guard, address=ns.address))
        program.write_text(text.replace("ctx.append(", f"{more}ctx.append("))
        return subprocess.run([sys.executable, str(program)], capture_output=True, text=True)

    # A function that uses a variable of a program cannot do without the program.
    unguarded = run("if True", more="_ = ns.address; ")
    assert unguarded.returncode != 0 and "MR3142" in unguarded.stderr, unguarded.stderr
    assert "'double' uses 'ns'" in unguarded.stderr and "if __name__" in unguarded.stderr, unguarded.stderr
    assert ns.latest("raw") == 1, "the program ran again while it was imported"
    assert [function.name for function in ns.functions()] == []
    for guard, latest in (("if True", 2), ('if __name__ == "__main__"', 3)):
        done = run(guard)
        assert done.returncode == 0 and done.stdout == "double\n", done.stderr
        assert ns.latest("raw") == latest


class Notebook:
    """Runs cells as IPython does: in `__main__`, with their text known to Python under the name of a file that does not exist."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {"__name__": "__main__"}
        self._cells = 0

    def cell(self, text: str) -> None:
        self._cells += 1
        name = f"/nowhere/ipykernel_1/{id(self)}_{self._cells}.py"
        text = textwrap.dedent(text)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), self.known)

    def __getitem__(self, name: str) -> Any:
        return self.known[name]


def test_a_function_of_a_notebook_runs_with_what_it_uses(ns: millrace.Namespace, host: Start) -> None:
    ns.create_log("clean")
    book = Notebook()
    book.cell("import math\nimport os.path\nimport xml.etree.ElementTree\nfrom statistics import mean as average\nimport millrace\nLOG = 'raw'")
    book.cell("def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n > 0 and even(n - 1)")
    text = """
        @millrace.function(
            on=LOG, retries=0)
        def judge(record: millrace.Record, ctx: millrace.Context, separator=os.path.sep) -> None:
            class Both:
                one = 1
                two = one + 1
            tag = xml.etree.ElementTree.fromstring("<a/>").tag
            ctx.append("clean", [even(record.json()), average([Both.one, Both.two]), math.floor(2.5), tag, separator])
    """
    book.cell(text)
    first = ns.deploy(book["judge"])
    assert first.change == "created"
    book.cell(text)
    assert ns.deploy(book["judge"]) == type(first)("judge", first.code, "unchanged")
    host(ns)
    ns.append("raw", 4)
    ns.wait_idle(PATIENCE_S)
    assert ns.get("clean").json() == [True, 1.5, 2, "a", "/"]
    book.cell("def odd(n):\n    return n % 2 == 1")
    again = ns.deploy(book["judge"])
    assert again.change == "updated" and again.code != first.code


@pytest.mark.parametrize(
    ("before", "body", "said"),
    [
        ("limit = 30", "return limit", "'limit', a value of type int that exists only in this program; write its value inside"),
        ("class Limit: pass", "Limit()", "'Limit', a class that exists only in this program; define it in a file"),
        ("", "return missing", "'missing', which is not defined"),
        ("def made():\n    n = 1\n    def inner(): return n\n    return inner\ninner = made()", "inner()", "'inner', a value of type function"),
        ("limit = 30\ndef helper(): return limit", "helper()", "'helper' uses 'limit'"),
    ],
)
def test_a_function_of_a_notebook_that_uses_a_variable_is_refused(
    before: str, body: str, said: str, ns: millrace.Namespace
) -> None:
    book = Notebook()
    book.cell(before)
    book.cell(f"def judge(record, ctx):\n    {body}")
    with pytest.raises(millrace.Invalid, match="MR6103") as refused:
        ns.deploy(book["judge"], on="raw")
    assert said in str(refused.value)
    assert ns.functions() == []


def test_a_function_of_a_notebook_that_imports_a_module_beside_it_says_what_to_do(
    ns: millrace.Namespace, write: Write, tmp_path: Path
) -> None:
    write("beside", "def double(n): return 2 * n\n")
    book = Notebook()
    book.cell("import beside\ndef judge(record, ctx):\n    return beside.double(1)")
    with pytest.raises(millrace.Invalid, match="MR6103: 'judge' imports 'beside' from") as refused:
        ns.deploy(book["judge"], on="raw")
    assert f"deploy it with source='{tmp_path}'" in str(refused.value)
    assert write("judges", "import beside\ndef judge(record, ctx): return beside.double(1)\n")
    assert ns.deploy(sys.modules["judges"].judge, on="raw", source=str(tmp_path)).change == "created"


def test_a_cell_that_a_debugger_wrote_to_a_file_is_not_run_again(ns: millrace.Namespace, tmp_path: Path) -> None:
    book = Notebook()
    cell = tmp_path / "1234.py"
    cell.write_text("raise SystemExit('the cell ran again')\n")
    book.cell("def judge(record, ctx): pass")
    judge = book["judge"]
    text = linecache.cache[judge.__code__.co_filename]
    judge.__code__ = judge.__code__.replace(co_filename=str(cell))
    linecache.cache[str(cell)] = (*text[:3], str(cell))
    assert ns.deploy(judge, on="raw").change == "created"


def test_a_function_of_a_script_whose_name_does_not_end_in_py_is_deployed(ns: millrace.Namespace, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(textwrap.dedent(ALONE.format(guard="if True", address=ns.address)))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    # Only the function is deployed, so what the script does is not run again, guarded or not.
    assert done.returncode == 0 and done.stdout == "double\n", done.stderr
    assert ns.latest("raw") == 1


def test_the_check_of_a_module_runs_in_a_sandbox(ns: millrace.Namespace, host: Start, write: Write, tmp_path: Path) -> None:
    running = host(ns)
    status = json.loads((Path(ns.address) / "host.json").read_text())
    if status["sandbox"]["level"] == "none":
        pytest.skip("this machine has no sandboxes")
    running.process.terminate()
    running.process.wait()
    module = write(
        "marks",
        f"""
        import contextlib
        import pathlib

        with contextlib.suppress(OSError):
            mark = pathlib.Path({str(tmp_path / "mark")!r})
            mark.write_text(mark.read_text() + "x" if mark.exists() else "x")

        @millrace.function(on="raw")
        def marks(record, ctx):
            pass
        """,
    )
    assert (tmp_path / "mark").read_text() == "x", "the test imports it"
    ns.deploy(module.marks)
    assert (tmp_path / "mark").read_text() == "x"


ANSWERING = """
from __future__ import annotations
import time
import millrace

@millrace.function(retries=0)
def answer(record: millrace.Record, ctx: millrace.Context) -> object:
    order = record.json()
    if order == "fail":
        raise KeyError("no such order")
    return {"bytes": b"\\xff\\x00", "text": "\\u00e9", "odd": object(), "large": "x" * (2 << 20), "run": ctx.idempotency_key}.get(
        order if isinstance(order, str) else "", order)

@millrace.function(timeout=3600)
def sleep(record: millrace.Record, ctx: millrace.Context) -> None:
    time.sleep(3600)
"""


@pytest.fixture
def deployed(ns: millrace.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[millrace.Namespace]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "answering.py").write_text(ANSWERING)
    importlib.invalidate_caches()
    module = importlib.import_module("answering")
    ns.deploy(module.answer)
    ns.deploy(module.sleep)
    yield ns
    sys.modules.pop("answering", None)


VALUES: list[Any] = [None, 7, [1, 2.5, None], {"a": {"b": []}}, True]


def ask(place: millrace.Namespace, value: object, **how: Any) -> Any:
    return place.invoke("answer", value, wait=PATIENCE_S, **how)


@pytest.mark.parametrize("way", ["files", "host", "socket"])
def test_what_a_function_returns_is_returned(way: str, deployed: millrace.Namespace, host: Start) -> None:
    running = host(deployed)
    where = {"host": running.address, "socket": running.socket}
    place = deployed if way == "files" else millrace.open(where[way])
    assert [ask(place, value) for value in VALUES] == VALUES
    assert (ask(place, '"bytes"'), ask(place, b'"text"')) == (b"\xff\x00", "é")
    for value, code in (('"fail"', "MR3110"), ('"odd"', "MR3150"), ('"large"', "MR3150")):
        with pytest.raises(millrace.Error) as raised:
            ask(place, value)
        assert raised.value.code == code
        run = place.run(raised.value.run)  # type: ignore[attr-defined]
        assert (run.function, run.result) == ("answer", None)
    first = ask(place, '"run"', key="k1")
    assert place.run(first).result == first and ask(place, '"run"', key="k1") == first
    with pytest.raises(millrace.Error, match="MR6023"):
        ask(place, '"text"', key="k1")
    with pytest.raises(millrace.NotFound, match="no function 'anser'; did you mean 'answer'"):
        place.invoke("anser", b"x")
    with pytest.raises(millrace.TimedOut) as late:
        place.invoke("sleep", b"x", wait=0.05)
    run = place.run(late.value.run)  # type: ignore[attr-defined]
    assert run.ended is None and run.state in ("pending", "started")
    place.cancel_run(run.id)
    assert ask(place, 1, log="raw") == 1 and place.latest("raw") == 1


@pytest.mark.parametrize("way", ["files", "host"])
def test_an_event_loop_waits_for_many_at_once(way: str, deployed: millrace.Namespace, host: Start) -> None:
    address = host(deployed).address

    async def many() -> None:
        async with millrace.aopen(deployed.address if way == "files" else address) as place:
            calls = [place.invoke("answer", n, wait=PATIENCE_S) for n in range(100)]
            assert await asyncio.gather(*calls) == list(range(100))
            with pytest.raises(millrace.Error, match="MR3110"):
                await place.invoke("answer", '"fail"', wait=PATIENCE_S)
            with pytest.raises(millrace.TimedOut):
                await place.invoke("sleep", b"", wait=0.05)
            first = await place.invoke("answer", '"run"', wait=PATIENCE_S, key="k1")
            assert (await place.run(first)).result == first
            assert await place.invoke("answer", '"run"', wait=PATIENCE_S, key="k1") == first

    asyncio.run(many())
