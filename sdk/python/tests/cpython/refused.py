"""The tests of CPython that do not pass, and why. A class with a text in place of its tests does not run at all."""

from __future__ import annotations

from typing import Union

#: The versions of Python whose tests this list is for; those of others differ, and do not run.
VERSIONS = ((3, 11),)

_NAMED = "objects show their keys, by which other programs find them"
_INSIDE = "it looks at the inside of CPython's class"
_MEMORY = "it needs memory that processes share; the host has the values"
_PICKLED = "it sends its own class to a worker, with a pool or a piece of shared memory that cannot be sent"
_PROCESSES = "it looks at processes of this machine's operating system, or needs them to be children of the program"
_COLLECTED = "it counts references within one process; threads that wait for results keep an executor alive until it is shut down"
_STARTED = "the host starts workers and ends them, and there are no start methods and no numbers of tasks for each"
_INTERPRETER = "it runs a program of its own, which uses the standard library's executor"

_REPR = {"test_repr": _NAMED, "test_locked_repr": _NAMED}

REFUSED: dict[str, Union[str, dict[str, str]]] = {
    "LockTests": {**_REPR, "test_at_fork_reinit": _INSIDE},
    "RLockTests": {**_REPR, "test_at_fork_reinit": _INSIDE},
    "ConditionAsRLockTests": {**_REPR, "test_at_fork_reinit": _INSIDE},
    "ConditionTests": {"test_acquire": "a condition of the host needs a lock of the host, and this is one of the program"},
    "EventTests": {**_REPR, "test_at_fork_reinit": _INSIDE, "test_reset_internal_locks": _INSIDE},
    "SemaphoreTests": _REPR,
    "BoundedSemaphoreTests": _REPR,
    "BarrierTests": _REPR,
    "FuturesProcessPoolExecutorTest": {
        "test_idle_process_reuse_multiple": _INSIDE,
        "test_idle_process_reuse_one": _INSIDE,
        "test_killed_child": _INSIDE,
        "test_max_tasks_early_shutdown": _STARTED,
        "test_max_tasks_per_child": _STARTED,
        "test_max_tasks_per_child_defaults_to_spawn_context": _STARTED,
        "test_ressources_gced_in_workers": _STARTED,
        "test_saturation": _STARTED,
        "test_traceback": "the cause of an exception is `millrace.executor.RemoteTraceback`",
    },
    "FuturesFailingInitializerMixin": "an initializer that raises fails the tasks of its worker, and the executor continues",
    "FuturesExecutorShutdownTest": {
        "test_cancel_futures": _INSIDE,
        "test_hang_gh83386": _INTERPRETER,
        "test_hang_issue12364": _INSIDE,
        "test_interpreter_shutdown": _INTERPRETER,
        "test_submit_after_interpreter_shutdown": _INTERPRETER,
    },
    "MultiprocessingPoolTests": {
        "test_make_pool": _INSIDE,
        "test_release_task_refs": _COLLECTED,
        "test_resource_warning": "a pool that nobody closes is no resource of the program: the host ends its workers when they are idle",
        "test_traceback": _PICKLED,
        "test_wrapped_exception": _PICKLED,
    },
    "MultiprocessingQueueTests": {"test_queue_feeder_donot_stop_onexc": "there is no thread that sends items: `put` raises the exception"},
    "MultiprocessingSemaphoreTests": {"test_timeout": "as with `threading`, a call that does not wait takes no timeout"},
    "MultiprocessingConditionTests": {test: _INSIDE for test in ("test_notify", "test_notify_all", "test_notify_n")},
    "MultiprocessingEventTests": _REPR,
    "MultiprocessingBarrierTests": _PICKLED,
    "MultiprocessingValueTests": {"test_rawvalue": _MEMORY, "test_getobj_getlock": _MEMORY},
    "MultiprocessingArrayTests": {"test_rawarray": _MEMORY, "test_getobj_getlock_obj": _MEMORY},
    "MultiprocessingProcessTests": _PROCESSES,
    "MultiprocessingConnectionTests": _PROCESSES,
    "MultiprocessingPollTests": _PROCESSES,
}
