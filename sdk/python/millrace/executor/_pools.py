"""Pools: their settings, and the code of their workers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from millrace._namespace import LocalNamespace
from millrace._records import _native

if TYPE_CHECKING:
    from millrace.executor import Connection

#: The default limits of a pool's workers.
MEMORY_BYTES = 512 << 20
TIMEOUT_S = 3600.0
RETRIES = 3

_WORKER_INIT = '''"""The functions of Millrace that a task can use."""

import sys

# The worker itself has loaded it, under this name.
_worker = sys.modules["millrace._worker"]

for _name in _worker.OFFERED:
    globals()[_name] = getattr(_worker, _name)

from millrace import objects
from millrace.objects import *
from millrace.executor._task import idempotency_key
from millrace.executor._threads import CloudThread
from millrace.objects._classes import method, readonly, reentrant, shared, when

__all__ = [
    *_worker.OFFERED, *objects.__all__, "CloudThread", "idempotency_key", "method", "readonly", "reentrant", "shared", "when",
]
'''


_WORKER_AIO = '''"""The part of `millrace.aio` that a method or a task can use."""

from millrace.aio._awaited import Object, awaited
from millrace.aio._threads import CloudThread

__all__ = ["CloudThread", "Object", "awaited"]
'''

#: Packages that workers import, besides a part of this one.
_SHIPPED = ("futures", "objects", "threading", "queue", "managers", "multiprocessing", "lithops")


def worker_code(folder: Path, cloudpickle: Any) -> None:
    """The modules for workers: the needed part of this package, and the installed cloudpickle."""
    ours, here = folder / "millrace", Path(__file__).parent
    for package in ("aio", "executor", *_SHIPPED):
        (ours / package).mkdir(parents=True)
    (folder / "task.py").write_text("from millrace.executor._task import run\n")
    (ours / "__init__.py").write_text(_WORKER_INIT)
    (ours / "executor" / "__init__.py").write_text("")
    (ours / "aio" / "__init__.py").write_text(_WORKER_AIO)
    names = ["executor/_large.py", "executor/_task.py", "executor/_threads.py"]
    names += ["aio/_awaited.py", "aio/_steps.py", "aio/_threads.py"]
    names += [f"{package}/{file.name}" for package in _SHIPPED for file in sorted((here.parent / package).glob("*.py"))]
    for name in names:
        shutil.copyfile(here.parent / name, ours / name)
    theirs = Path(cloudpickle.__file__).parent
    shutil.copytree(theirs, folder / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))


def settings(
    workers: Optional[int] = None,
    memory: int = MEMORY_BYTES,
    timeout: float = TIMEOUT_S,
    retries: int = RETRIES,
    network: bool = False,
    env: Optional[dict[str, str]] = None,
    python: Optional[str] = None,
) -> dict[str, Any]:
    """The settings of a pool."""
    return {
        "concurrency": workers or min(os.cpu_count() or 1, 64),
        "ordered": False,
        "memory": memory,
        "timeout": timeout,
        "retries": retries,
        "network": network,
        "env": env or {},
        "python": python or sys.executable or "python3",
    }


def make_pool(connection: Connection, cloudpickle: Any, given: dict[str, Any]) -> str:
    """Creates a pool with these settings, unless it exists."""
    if not connection._directories or connection.directory is None:
        detail = f"'{connection.address}' is another machine's: name a pool that it has, as in Executor(..., pool='NAME')"
        raise _native.error("MR7114", detail)
    with tempfile.TemporaryDirectory(prefix="millrace-pool-") as folder:
        worker_code(Path(folder), cloudpickle)
        spec = {"name": "pool", "handler": "task:run", **given}
        name = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:12]
        # Any host of a cluster may come to lead the objects, and then runs their methods.
        for directory in connection._directories:
            with LocalNamespace(directory) as namespace:
                namespace.make_pool(name, json.dumps(spec), folder)
    return name


def make_module_pool(connection: Connection, file: Path, module: bytes, workers: int, memory: int) -> str:
    """Creates a pool with a module in WebAssembly, unless it exists."""
    if not connection._directories or connection.directory is None:
        detail = f"'{connection.address}' is another machine's: name a pool that has the module, as in shared_module(..., pool='NAME')"
        raise _native.error("MR7114", detail)
    spec = {"name": "pool", "runtime": "wasm", "handler": "handle", "concurrency": workers, "ordered": False, "memory": memory}
    name = hashlib.sha256(json.dumps(spec, sort_keys=True).encode() + module).hexdigest()[:12]
    for directory in connection._directories:
        with LocalNamespace(directory) as namespace:
            namespace.make_pool(name, json.dumps(spec), str(file))
    return name
