"""The code of a pool's workers: one task for each record of `_tasks/POOL`, whose result goes to `_results/POOL`.

    task    id: 24 bytes, body: 8 bytes, length of the application: 1 byte, application, pickled (args, kwargs)
    body    version of Python: 2 bytes, pickled (function, client, initializer, its arguments)
    result  kind: 1 byte, id: 24 bytes; 0 and the pickled result, or 1 and the pickled exception
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import random
import struct
import sys

from millrace import _worker
from millrace.executor import _large
from millrace.objects import _raised, _spaces, _steps, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

ID_BYTES = 24
#: The part of an id that all tasks of a client have in common.
_CLIENT_BYTES = 16
RETURNED, RAISED, FAILED = 0, 1, 2
#: Bodies that a worker keeps.
_BODIES_MAX = 64
#: A result is one record.
_RESULT_BYTES_MAX = (16 << 20) - 4096

_bodies: dict[object, Callable[..., Any]] = {}
#: The clients whose initializers have run in this worker.
_initialized: set[bytes] = set()
#: The states of random numbers of clients whose initializers have set them: their tasks go on from there.
_drawn: dict[bytes, tuple[Any, Any]] = {}
#: The surroundings of a new worker, and those of clients whose initializers have changed them.
_plain: Any = None
_prepared: dict[bytes, Any] = {}
#: The task for which NumPy's random numbers were set.
_numpy_set_for: Optional[bytes] = None
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
        _set_numpy()
        if initializer is not None and client not in _initialized:
            before = _drawing()
            try:
                initializer(*arguments)
            except BaseException as error:
                raise InitializerFailed(f"{type(error).__name__}: {error}") from error
            _initialized.add(client)
            after = _drawing()
            if after != before:
                _drawn[client] = after
            if _plain is not None and _surroundings() != _plain:
                _prepared[client] = _surroundings()
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


def _numpy_random() -> Any:
    """The random numbers of NumPy, if the worker has imported it."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else getattr(numpy, "random", None)


def _drawing() -> tuple[Any, Any]:
    """Which random numbers come next."""
    theirs = _numpy_random()
    state = None if theirs is None else theirs.get_state()
    return random.getstate(), state if state is None else (state[0], state[1].tobytes(), *state[2:])


def _surroundings() -> Any:
    """What a task finds, and may change for the next one: the directory, arguments, variables and streams."""
    directory = None
    with contextlib.suppress(OSError):
        directory = os.getcwd()
    return directory, list(sys.argv), dict(os.environ), (sys.stdin, sys.stdout, sys.stderr)


def _restore(client: bytes) -> None:
    """Other programs use the same worker: what their tasks have changed is as it was."""
    global _plain
    found = _surroundings()
    if _plain is None:
        _plain = found
    wanted = _prepared.get(client, _plain)
    if found == wanted:
        return
    directory, arguments, variables, streams = wanted
    if directory is not None and directory != found[0]:
        with contextlib.suppress(OSError):
            os.chdir(directory)
    sys.argv[:] = arguments
    if variables != found[2]:
        os.environ.clear()
        os.environ.update(variables)
    sys.stdin, sys.stdout, sys.stderr = streams


def begin(id: bytes) -> None:
    """Prepares the worker for an attempt of a task. A later attempt draws the same random numbers, and so makes the same calls; unless the
    initializer of its client has set which ones come."""
    global _running, _numpy_set_for
    _running, _numpy_set_for = id, None
    ours, _ = _drawn.get(id[:_CLIENT_BYTES], (None, None))
    if ours is None:
        random.seed(id)
    else:
        random.setstate(ours)
    _set_numpy()
    _values.pickle_with(_raised.dumps)


def _set_numpy() -> None:
    """The same for NumPy, as soon as the worker has imported it."""
    global _numpy_set_for
    numpy = _numpy_random()
    if numpy is None or _running is None or _numpy_set_for == _running:
        return
    _numpy_set_for = _running
    _, state = _drawn.get(_running[:_CLIENT_BYTES], (None, None))
    if state is None:
        numpy.seed(struct.unpack("<8I", hashlib.sha256(_running).digest()))
    else:
        numpy.set_state((state[0], struct.unpack(f"{len(state[1]) // 4}I", state[1]), *state[2:]))


def end() -> None:
    """Ends the attempt."""
    global _running
    id, _running = _running, None
    if id is not None and id[:_CLIENT_BYTES] in _drawn:
        _drawn[id[:_CLIENT_BYTES]] = _drawing()
    _spaces.use(None)


def _body(pool: str, number: int, context: Any) -> Callable[..., Any]:
    """The function of a task of a pool."""
    return open_body(number, lambda: context.get(f"_bodies/{pool}", number).data)


def run(record: Any, context: Any) -> None:
    """Runs a task and appends its result, which may be an exception."""
    shipped = record.data
    id, number = shipped[:ID_BYTES], int.from_bytes(shipped[ID_BYTES : ID_BYTES + 8], "little")
    start = ID_BYTES + 9 + shipped[ID_BYTES + 8]
    application = shipped[ID_BYTES + 9 : start].decode()
    pool = record.log.partition("/")[2]
    _restore(id[:_CLIENT_BYTES])
    begin(id)
    _spaces.use(_spaces.TaskSpace(context, application))
    try:
        function = _body(pool, number, context)
        args, kwargs = load(shipped[start:])
        _set_numpy()
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


def _class(_pool: str, number: int, context: Any) -> Callable[..., Any]:
    """The class of the object whose method runs."""
    return open_body(number, lambda: context._class(number))


def _step(request: bytes, context: Any) -> bytes:
    """Runs a method of a shared object."""
    return _steps.run(request, context, _class)


run.__millrace_step__ = _step  # type: ignore[attr-defined]
