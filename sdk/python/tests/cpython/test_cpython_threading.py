"""CPython's tests of locks and queues."""

from __future__ import annotations

import time

import pytest

import millrace.queue
import millrace.threading
from suites import host as host
from suites import install, suite

pytest.importorskip("cloudpickle")
# Those of the tests' own code are CPython's.
pytestmark = pytest.mark.filterwarnings("default")

LOCKS = suite("lock_tests")
if hasattr(LOCKS, "BaseTestCase"):
    # A call to a host takes longer than one of the system, so what waits is given more time to begin to wait.
    for wait in ("_wait", "wait_threads_blocked"):
        if hasattr(LOCKS, wait):
            setattr(LOCKS, wait, lambda threads=1: time.sleep(0.05 * min(threads, 4)))
    # Nothing is said about how fast a machine is.
    LOCKS.BaseTestCase.assertTimeout = lambda self, actual, expected: self.assertGreaterEqual(actual, expected * 0.6)

for kind, locktype in {
    "LockTests": "Lock",
    "RLockTests": "RLock",
    "EventTests": "Event",
    "SemaphoreTests": "Semaphore",
    "BoundedSemaphoreTests": "BoundedSemaphore",
    "BarrierTests": "Barrier",
}.items():
    attribute = {"EventTests": "eventtype", "BarrierTests": "barriertype"}.get(kind, "semtype" if "Sem" in kind else "locktype")
    install(globals(), getattr(LOCKS, kind, None), kind, **{attribute: staticmethod(getattr(millrace.threading, locktype))})
install(globals(), getattr(LOCKS, "RLockTests", None), "ConditionAsRLockTests", locktype=staticmethod(millrace.threading.Condition))
install(globals(), getattr(LOCKS, "ConditionTests", None), "ConditionTests", condtype=staticmethod(millrace.threading.Condition))

QUEUES = suite("test_queue")
for kind in ("QueueTest", "LifoQueueTest", "PriorityQueueTest"):
    install(globals(), getattr(QUEUES, kind, None), kind, queue=millrace.queue, type2test=getattr(millrace.queue, kind[:-4]))
install(globals(), getattr(QUEUES, "BaseSimpleQueueTest", None), "SimpleQueueTest", queue=millrace.queue, type2test=millrace.queue.SimpleQueue)
