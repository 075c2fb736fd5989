"""Exceptions on their way from a worker to the program that called it."""

from __future__ import annotations

import pickle
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TaskError(Exception):
    """A worker raised an exception that cannot be recreated here: `name` is its class, and `text` its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskError, (self.name, self.text)


class RemoteTraceback(Exception):
    """Where a worker raised: the cause of the exception that the caller gets."""

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
