"""CPython's tests of `multiprocessing`."""

from __future__ import annotations

import pytest

import millrace.multiprocessing
from suites import host as host
from suites import install, suite

pytest.importorskip("cloudpickle")
# Those of the tests' own code are CPython's.
pytestmark = pytest.mark.filterwarnings("default")

PROCESSES = suite("_test_multiprocessing")


class Processes:
    """What the tests of `multiprocessing` take its classes from."""

    TYPE = "processes"


for name in millrace.multiprocessing.__all__:
    found = getattr(millrace.multiprocessing, name)
    setattr(Processes, name, found if isinstance(found, type) and name == "Process" else staticmethod(found))

for kind in ("Queue", "Lock", "Semaphore", "Condition", "Event", "Barrier", "Value", "Array", "Pool", "Process", "Connection", "Poll"):
    install(globals(), getattr(PROCESSES, f"_Test{kind}", None), f"Multiprocessing{kind}Tests", Processes)
