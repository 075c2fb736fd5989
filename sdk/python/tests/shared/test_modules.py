"""Classes in WebAssembly: their methods run within the host."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.aio
from millrace._namespace import LocalNamespace

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")

SHAPE = """
#include "millrace.h"
#include "millrace_class.h"
"""
GATE = (
    SHAPE
    + """
typedef struct { int64_t size, inside; double heat; unsigned char name[16]; } gate;

static void make(mr_call *call) {
    gate *self = call->object;
    self->size = mr_int(call, 0);
    if (self->size < 0) mr_raise(call, "ValueError", "a negative size");
}

static void enter(mr_call *call) {
    gate *self = call->object;
    if (self->inside == self->size)
        mr_raise(call, "OverflowError", "the gate is full");
    mr_return_int(call, ++self->inside);
}

static void inside(mr_call *call) { mr_return_int(call, ((gate *)call->object)->inside); }

static void echo(mr_call *call) {
    size_t size;
    const unsigned char *bytes = mr_bytes(call, 0, &size);
    mr_return_bytes(call, bytes, size);
}

static void heat(mr_call *call) {
    gate *self = call->object;
    self->heat += mr_double(call, 0);
    mr_return_double(call, mr_bool(call, 1) ? -self->heat : self->heat);
}

static void nothing(mr_call *call) { if (!mr_is_nil(call, 0)) mr_return_text(call, "something", 9); }
static void cheat(mr_call *call) { ((gate *)call->object)->inside = 0; }
static void spin(mr_call *call) { for (volatile int i = 1; i != 0;) i = call->object != 0; }

MR_CLASS(gate, make, MR_NO_MIGRATION, {"enter", enter, 0}, {"inside", inside, MR_READONLY}, {"echo", echo, MR_READONLY},
         {"heat", heat, 0}, {"nothing", nothing, MR_READONLY}, {"cheat", cheat, MR_READONLY}, {"spin", spin, 0})
"""
)
NEWER = (
    SHAPE
    + """
typedef struct { int64_t size, inside, left; } gate;
typedef struct { int64_t size, inside; double heat; unsigned char name[16]; } older;

static void migrate(mr_call *call, int64_t version, const void *object, size_t size) {
    gate *self = call->object;
    const older *from = object;
    if (version != 1 || size != sizeof(older)) mr_raise(call, "ValueError", "not version 1");
    self->size = from->size, self->inside = from->inside, self->left = from->size - from->inside;
}

static void left(mr_call *call) { mr_return_int(call, ((gate *)call->object)->left); }

MR_CLASS(gate, 0, migrate, {"left", left, MR_READONLY})
"""
)
METHODS, READONLY = ["enter", "heat", "spin", "missing"], ["inside", "echo", "nothing", "cheat"]


def built(folder: Path, source: str, name: str = "gate") -> Path:
    (folder / f"{name}.c").write_text(source)
    module = folder / f"{name}.wasm"
    flags = ["--target=wasm32", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-nostdlib", "-Wl,--no-entry"]
    subprocess.run(["clang", *flags, "-I", str(ROOT / "sdk/c"), str(folder / f"{name}.c"), "-o", str(module)], check=True)
    return module


@pytest.fixture(scope="module")
def farm(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as connection:
        yield connection


def test_methods_run_with_their_object(farm: millrace.Connection, tmp_path: Path) -> None:
    gates = farm.shared_module(built(tmp_path, GATE), methods=METHODS, readonly=READONLY)
    front = gates("front", 3)
    assert [front.enter() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(OverflowError, match="the gate is full"):
        front.enter()
    # A method that raises changes nothing.
    assert front.inside() == 3 and gates("front").inside() == 3
    for value in (b"", b"x" * 60_000, "text"):
        assert front.echo(value) == (value.encode() if isinstance(value, str) else value)
    assert (front.heat(1.5, False), front.heat(2, True)) == (1.5, -3.5)
    assert front.nothing(None) is None and front.nothing(0) == "something"
    for size in (0, -1, 127, 128, -129, 1 << 40, -(1 << 63), (1 << 63) - 1):
        if size < 0:
            with pytest.raises(ValueError, match="a negative size"):
                gates(f"size/{size}", size).inside()
        else:
            assert gates(f"size/{size}", size).inside() == 0


def test_what_a_class_does_not_have_is_refused(farm: millrace.Connection, tmp_path: Path) -> None:
    gates = farm.shared_module(built(tmp_path, GATE), methods=METHODS, readonly=READONLY, timeout=1.0)
    gate = gates("refuses", 1)
    assert gate.enter() == 1
    with pytest.raises(AttributeError, match="no such method"):
        gate.missing()
    with pytest.raises(TypeError, match="an argument is missing"):
        gate.echo()
    with pytest.raises(TypeError, match="not an integer"):
        gates("of text", "three").inside()
    with pytest.raises(TypeError, match="takes numbers, text"):
        gate.echo([1])
    with pytest.raises(TypeError, match="no named arguments"):
        gate.echo(bytes=b"")
    with pytest.raises(TypeError, match="changed the object"):
        gate.cheat()
    # One that never returns is ended, and its object is as before.
    with pytest.raises(millrace.Error) as ended:
        gate.spin()
    assert ended.value.code == "MR7119" and gate.inside() == 1


def test_clients_call_one_at_a_time_and_tasks_call_too(farm: millrace.Connection, tmp_path: Path) -> None:
    gates = farm.shared_module(built(tmp_path, GATE), methods=METHODS, readonly=READONLY)
    gate = gates("many", 10_000)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.extend(gate.enter() for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 201))
    with farm.Executor(workers=2) as executor:
        assert sorted(executor.map(lambda _: gate.enter(), range(4))) == [201, 202, 203, 204]


def test_an_object_survives_its_host_and_is_migrated(binary: Path, tmp_path: Path) -> None:
    place = tmp_path / "farm"
    millrace.create(place, durability="memory").close()
    module = built(tmp_path, GATE)
    for expected in (1, 2):
        host = subprocess.Popen([binary, "serve", "--listen", "none", "-n", str(place)], stdout=subprocess.PIPE)
        try:
            assert host.stdout is not None and host.stdout.readline()
            with millrace.connect(place) as farm:
                how: dict[str, Any] = {"methods": METHODS, "readonly": READONLY, "persistent": True}
                gate = farm.shared_module(module, pool=farm_pool(farm, module), **how)("kept", 3)
                assert gate.enter() == expected
                if expected == 2:
                    newer = built(tmp_path, NEWER, "newer")
                    pool = farm_pool(farm, newer)
                    how = {"name": "gate", "readonly": ["left"], "version": 2, "persistent": True}
                    assert farm.shared_module(newer, pool=pool, **how)("kept").left() == 1
                    with pytest.raises(millrace.Error) as refused:
                        gate.inside()
                    assert refused.value.code == "MR7120"
        finally:
            host.kill()
            host.wait()
            assert host.stdout is not None
            host.stdout.close()


def farm_pool(farm: millrace.Connection, module: Path) -> str:
    """A pool whose name stays when its module changes, as one of a millrace.toml."""
    assert farm.directory is not None
    spec = {"name": "pool", "runtime": "wasm", "handler": "handle", "concurrency": 2, "ordered": False}
    with LocalNamespace(farm.directory) as namespace:
        namespace.make_pool("gates", json.dumps(spec), str(module))
    return "gates"


def test_they_are_awaited(farm: millrace.Connection, tmp_path: Path) -> None:
    async def main() -> None:
        async with millrace.aio.connect(farm.address) as near:
            gates = await near.shared_module(built(tmp_path, GATE), methods=METHODS, readonly=READONLY)
            gate = gates("awaited", 2)
            assert await gate.enter() == 1 and await gate.inside() == 1

    asyncio.run(main())
