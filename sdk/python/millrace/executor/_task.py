"""The code of a pool's workers: one task for each record of `_tasks/POOL`, whose result goes to `_results/POOL`.

    task    id: 24 bytes, body: 8 bytes, length of the application: 1 byte, application, pickled (args, kwargs)
    body    version of Python: 2 bytes, pickled (function, client, initializer, its arguments)
    result  kind: 1 byte, id: 24 bytes; 0 and the pickled result, or 1 and the pickled exception
"""

from __future__ import annotations

import pickle
import random
import sys

from millrace import _worker
from millrace.executor import _large
from millrace.objects import _raised, _spaces, _steps, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

#: The prefix of the pool's name if a record is a method call and not a task.
_STEPS = "_steps/"
ID_BYTES = 24
RETURNED, RAISED, FAILED = 0, 1, 2
#: Bodies that a worker keeps.
_BODIES_MAX = 64
#: A result is one record.
_RESULT_BYTES_MAX = (16 << 20) - 4096

_bodies: dict[object, Callable[..., Any]] = {}
#: The clients whose initializers have run in this worker.
_initialized: set[bytes] = set()
#: The id of the task that this worker runs.
_running: Optional[bytes] = None


class InitializerFailed(RuntimeError):
    """The executor's initializer raised an exception in a worker."""


def body(version: tuple[int, int], pickled: bytes) -> bytes:
    """A serialized body."""
    return bytes(version) + pickled


def task(id: bytes, body: int, application: str, arguments: bytes) -> bytes:
    """A serialized task."""
    name = application.encode()
    return id + body.to_bytes(8, "little") + bytes((len(name),)) + name + arguments


def idempotency_key() -> str:
    """A text that is the same in every attempt of the calling task, and different for every other task."""
    if _running is None:
        raise RuntimeError("this code is not running in a task; only a task of an executor has a key")
    return _running.hex()


def open_body(key: object, read: Callable[[], bytes]) -> Callable[..., Any]:
    """The function with this key. A worker unpickles each one once."""
    found = _bodies.get(key)
    if found is None:
        shipped = read()
        ours = sys.version_info[:2]
        theirs = tuple(shipped[:2])
        if theirs != ours:
            detail = "the program runs Python {}.{}, and the workers {}.{}".format(*theirs, *ours)
            raise _worker.error_of("MR7137", detail)
        function, client, initializer, arguments = load(shipped[2:])
        if initializer is not None and client not in _initialized:
            try:
                initializer(*arguments)
            except BaseException as error:
                raise InitializerFailed(f"{type(error).__name__}: {error}") from error
            _initialized.add(client)
        if len(_bodies) >= _BODIES_MAX:
            _bodies.pop(next(iter(_bodies)))
        found = _bodies[key] = function
    return found


def load(pickled: bytes) -> Any:
    """Unpickles data of the program."""
    try:
        found = pickle.loads(pickled)
        return found.load() if isinstance(found, _large.Parts) else found
    except ModuleNotFoundError as error:
        if hasattr(error, "add_note"):
            module = (error.name or "it").partition(".")[0]
            error.add_note(
                f"The workers do not have {module!r}: install it where they run, or call millrace.register_module({module}) in the program "
                "so that its functions travel with the task."
            )
        raise


def pickle_result(value: object) -> bytes:
    """The serialized result of a task."""
    try:
        return _raised.dumps(value)
    except MemoryError:
        raise
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(
                f"The task's result, a {type(value).__name__}, cannot be pickled, or something that it refers to; return plain data instead."
            )
        raise


def begin(id: bytes) -> None:
    """Prepares the worker for an attempt of a task. A later attempt draws the same random numbers, and so makes the same calls."""
    global _running
    _running = id
    random.seed(id)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(int.from_bytes(id[-4:], "little"))
    _values.pickle_with(_raised.dumps)


def end() -> None:
    """Ends the attempt."""
    global _running
    _running = None
    _spaces.use(None)


def _body(pool: str, number: int, context: Any) -> Callable[..., Any]:
    """The function of a task of a pool."""
    return open_body(number, lambda: context.get(f"_bodies/{pool}", number).data)


def run(record: Any, context: Any) -> None:
    """Runs a task and appends its result, which may be an exception; or runs a method of a shared object."""
    if record.log.startswith(_STEPS):
        _steps.run(record, context, _body)
        return
    shipped = record.data
    id, number = shipped[:ID_BYTES], int.from_bytes(shipped[ID_BYTES : ID_BYTES + 8], "little")
    start = ID_BYTES + 9 + shipped[ID_BYTES + 8]
    application = shipped[ID_BYTES + 9 : start].decode()
    pool = record.log.partition("/")[2]
    begin(id)
    _spaces.use(_spaces.TaskSpace(context, application))
    try:
        function = _body(pool, number, context)
        args, kwargs = load(shipped[start:])
        pickled = pickle_result(function(*args, **kwargs))
        if len(pickled) > _RESULT_BYTES_MAX:
            # Another attempt makes the same calls, which count once.
            pickled = pickle.dumps(_large.send(f"{id.hex()}-result", [pickled]))
        result = bytes((RETURNED,)) + id + pickled
    except MemoryError:
        raise
    except BaseException as error:
        result = bytes((RAISED,)) + id + _raised.pack(error, __file__)
    finally:
        end()
    if len(result) > _RESULT_BYTES_MAX:
        detail = f"a raised exception of {len(result)} bytes; the limit is {_RESULT_BYTES_MAX}"
        result = bytes((FAILED,)) + id + b"MR7115" + detail.encode()
    context.append(f"_results/{pool}", result)
