"""What a pool's workers run: one task for each record of `_tasks/POOL`, whose result goes to `_results/POOL`.

    task    id: 24 bytes, body: 8 bytes, length of the application: 1 byte, application, pickled (args, kwargs)
    body    version of Python: 2 bytes, pickled (function, client, initializer, its arguments)
    result  kind: 1 byte, id: 24 bytes; 0 and the pickled result, or 1 and the pickled exception
"""

from __future__ import annotations

import pickle
import random
import sys
import traceback

from millrace.objects import _spaces, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
    """A body as it is shipped."""
    return bytes(version) + pickled


def task(id: bytes, body: int, application: str, arguments: bytes) -> bytes:
    """A task as it is shipped."""
    name = application.encode()
    return id + body.to_bytes(8, "little") + bytes((len(name),)) + name + arguments


def _dumps(value: object) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(value))


def _body(pool: str, number: int, context: Any) -> Callable[..., Any]:
    """The function of a task. A worker opens each body once."""
    found = _bodies.get(number)
    if found is None:
        shipped = context.get(f"_bodies/{pool}", number).data
        ours = sys.version_info[:2]
        theirs = tuple(shipped[:2])
        if theirs != ours:
            told = "the program runs Python {}.{}, and the pool's workers {}.{}".format(*theirs, *ours)
            raise PythonSkew(told)
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


def _exception(error: BaseException) -> bytes:
    """An exception with its traceback; what cannot be pickled is described by its name and text."""
    # Without the frames of this file.
    where = traceback.TracebackException(type(error), error, error.__traceback__)
    frames = [frame for frame in where.stack if frame.filename != __file__]
    where.stack = traceback.StackSummary.from_list(frames)
    told = "".join(where.format())
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        pickled = _dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return pickle.dumps((pickled, name, str(error), told))


def run(record: Any, context: Any) -> None:
    """Runs a task and leaves its result, which is also that it raised."""
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
    _values.pickle_with(_dumps)
    _spaces.use(_spaces.TaskSpace(context, application))
    try:
        function = _body(pool, number, context)
        args, kwargs = pickle.loads(shipped[begin:])
        result = bytes((RETURNED,)) + id + _dumps(function(*args, **kwargs))
    except MemoryError:
        raise
    except BaseException as error:
        result = bytes((RAISED,)) + id + _exception(error)
    finally:
        _spaces.use(None)
    context.append(f"_results/{pool}", result)
