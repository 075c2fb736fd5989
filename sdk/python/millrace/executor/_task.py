"""The code of a pool's workers: one task for each record of `_tasks/POOL`, whose result goes to `_results/POOL`.

    task    id: 24 bytes, body: 8 bytes, length of the application: 1 byte, application, pickled (args, kwargs)
    body    version of Python: 2 bytes, pickled (function, client, initializer, its arguments)
    result  kind: 1 byte, id: 24 bytes; 0 and the pickled result, or 1 and the pickled exception
"""

from __future__ import annotations

import pickle
import random
import sys

from millrace.objects import _raised, _spaces, _steps, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: The prefix of the pool's name if a record is a method call and not a task.
_STEPS = "_steps/"
ID_BYTES = 24
RETURNED, RAISED, FAILED = 0, 1, 2
#: Bodies that a worker keeps.
_BODIES_MAX = 64

_bodies: dict[int, Callable[..., Any]] = {}
#: The clients whose initializers have run in this worker.
_initialized: set[bytes] = set()


class PythonSkew(RuntimeError):
    """The program runs another version of Python than the pool's workers."""


class InitializerFailed(RuntimeError):
    """The executor's initializer raised in a worker."""


def body(version: tuple[int, int], pickled: bytes) -> bytes:
    """A serialized body."""
    return bytes(version) + pickled


def task(id: bytes, body: int, application: str, arguments: bytes) -> bytes:
    """A serialized task."""
    name = application.encode()
    return id + body.to_bytes(8, "little") + bytes((len(name),)) + name + arguments


def _body(pool: str, number: int, context: Any) -> Callable[..., Any]:
    """The function of a task. A worker opens each body once."""
    found = _bodies.get(number)
    if found is None:
        shipped = context.get(f"_bodies/{pool}", number).data
        ours = sys.version_info[:2]
        theirs = tuple(shipped[:2])
        if theirs != ours:
            detail = "the program runs Python {}.{}, and the pool's workers {}.{}".format(*theirs, *ours)
            raise PythonSkew(detail)
        function, client, initializer, arguments = pickle.loads(shipped[2:])
        if initializer is not None and client not in _initialized:
            try:
                initializer(*arguments)
            except BaseException as error:
                raise InitializerFailed(f"{type(error).__name__}: {error}") from error
            _initialized.add(client)
        if len(_bodies) >= _BODIES_MAX:
            _bodies.pop(next(iter(_bodies)))
        found = _bodies[number] = function
    return found


def run(record: Any, context: Any) -> None:
    """Runs a task and leaves its result, which is also that it raised; or a method of a shared object."""
    if record.log.startswith(_STEPS):
        _steps.run(record, context, _body)
        return
    shipped = record.data
    id, number = shipped[:ID_BYTES], int.from_bytes(shipped[ID_BYTES : ID_BYTES + 8], "little")
    begin = ID_BYTES + 9 + shipped[ID_BYTES + 8]
    application = shipped[ID_BYTES + 9 : begin].decode()
    pool = record.log.partition("/")[2]
    # An attempt after a lost worker draws the same numbers, and so makes the same calls.
    random.seed(id)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(int.from_bytes(id[-4:], "little"))
    _values.pickle_with(_raised.dumps)
    _spaces.use(_spaces.TaskSpace(context, application))
    try:
        function = _body(pool, number, context)
        args, kwargs = pickle.loads(shipped[begin:])
        result = bytes((RETURNED,)) + id + _raised.dumps(function(*args, **kwargs))
    except MemoryError:
        raise
    except BaseException as error:
        result = bytes((RAISED,)) + id + _raised.pack(error, __file__)
    finally:
        _spaces.use(None)
    context.append(f"_results/{pool}", result)
