"""Encodes the exceptions of workers, and decodes them in the calling program."""

from __future__ import annotations

import pickle
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TaskError(Exception):
    """A worker raised an exception that cannot be recreated here: `name` is the name of its class, and `text` its message."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskError, (self.name, self.text)


class RemoteTraceback(Exception):
    """The traceback of the worker, as the cause of the exception that the caller gets."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return f'\n"""\n{self.trace}"""'


def dumps(value: object) -> bytes:
    """Pickles with cloudpickle."""
    import cloudpickle

    return bytes(cloudpickle.dumps(value))


def pack(error: BaseException, file: str) -> bytes:
    """An exception with its traceback, without the frames of this file; one that cannot be pickled is sent as name and text."""
    where = traceback.TracebackException(type(error), error, error.__traceback__)
    where.stack = traceback.StackSummary.from_list([frame for frame in where.stack if frame.filename != file])
    trace = "".join(where.format())
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        pickled = dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return pickle.dumps((pickled, name, str(error), trace))


def known(code: str, detail: str) -> BaseException:
    """The error of this code, with its cause and remedy if the catalogue is installed, which workers do not have."""
    import millrace

    native = sys.modules.get("millrace._native")
    return millrace._worker.error_of(code, detail) if native is None else native.error(code, detail)


def completed(error: BaseException) -> BaseException:
    """The same exception; an error of Millrace gets the cause and the remedy that a worker does not know."""
    code = getattr(error, "code", None)
    if not isinstance(code, str) or not code.startswith("MR") or getattr(error, "remedy", None):
        return error
    found = known(code, getattr(error, "detail", ""))
    found.__cause__ = error.__cause__
    return found


def unpack(payload: bytes) -> BaseException:
    """The exception, whose cause is the traceback of the worker."""
    pickled, name, text, trace = pickle.loads(payload)
    error: BaseException
    try:
        error = pickle.loads(pickled)
    except BaseException:
        error = TaskError(name, text)
    error.__cause__ = RemoteTraceback(trace)
    return error
