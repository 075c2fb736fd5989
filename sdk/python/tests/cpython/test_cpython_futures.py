"""CPython's tests of `concurrent.futures`."""

from __future__ import annotations

from typing import Any

import pytest

import millrace.futures
from suites import host as host
from suites import install, suite

pytest.importorskip("cloudpickle")
# Those of the tests' own code are CPython's.
pytestmark = pytest.mark.filterwarnings("default")

FUTURES = suite("test_concurrent_futures")
BASE: Any = getattr(FUTURES, "BaseTestCase", object)


class Processes(getattr(FUTURES, "ExecutorMixin", object)):  # type: ignore[misc]
    """What the tests take an executor from."""

    executor_type = millrace.futures.ProcessPoolExecutor
    worker_count = 2


for kind in ("WaitTests", "AsCompletedTests", "ExecutorShutdownTest", "ProcessPoolExecutorTest", "InitializerMixin", "FailingInitializerMixin"):
    install(globals(), getattr(FUTURES, kind, None), f"Futures{kind}", Processes, BASE)
