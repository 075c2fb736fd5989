"""The code that workers of a pool have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

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
from millrace.objects._classes import method, readonly, shared

__all__ = [*_worker.OFFERED, *objects.__all__, "CloudThread", "idempotency_key", "method", "readonly", "shared"]
'''


#: Packages that workers import, besides a part of this one.
_SHIPPED = ("futures", "objects", "threading", "queue", "managers", "multiprocessing", "lithops")


def worker_code(folder: Path, cloudpickle: Any) -> None:
    """The modules for workers: the needed part of this package, and the installed cloudpickle."""
    ours, here = folder / "millrace", Path(__file__).parent
    for package in ("executor", *_SHIPPED):
        (ours / package).mkdir(parents=True)
    (folder / "task.py").write_text("from millrace.executor._task import run\n")
    (ours / "__init__.py").write_text(_WORKER_INIT)
    (ours / "executor" / "__init__.py").write_text("")
    names = ["executor/_large.py", "executor/_task.py", "executor/_threads.py"]
    names += [f"{package}/{file.name}" for package in _SHIPPED for file in sorted((here.parent / package).glob("*.py"))]
    for name in names:
        shutil.copyfile(here.parent / name, ours / name)
    theirs = Path(cloudpickle.__file__).parent
    shutil.copytree(theirs, folder / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))
