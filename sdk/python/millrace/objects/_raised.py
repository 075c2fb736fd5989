"""Exceptions on their way from a worker to the program that called it."""

from __future__ import annotations

import pickle
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TaskError(Exception):
    """A worker raised what cannot be made again here: `name` is its class, and `text` what it says."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskError, (self.name, self.text)


class RemoteTraceback(Exception):
    """Where a worker raised: the cause of the exception that the caller gets."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told

    def __str__(self) -> str:
        return f'\n"""\n{self.told}"""'


def dumps(value: object) -> bytes:
    """What cloudpickle writes."""
    import cloudpickle

    return bytes(cloudpickle.dumps(value))


def pack(error: BaseException, file: str) -> bytes:
    """An exception with its traceback, without the frames of this file of ours; what cannot be pickled is told by its name and text."""
    where = traceback.TracebackException(type(error), error, error.__traceback__)
    where.stack = traceback.StackSummary.from_list([frame for frame in where.stack if frame.filename != file])
    told = "".join(where.format())
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        pickled = dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return pickle.dumps((pickled, name, str(error), told))


def unpack(payload: bytes) -> BaseException:
    """The exception, whose cause says where it was raised."""
    pickled, name, text, told = pickle.loads(payload)
    error: BaseException
    try:
        error = pickle.loads(pickled)
    except BaseException:
        error = TaskError(name, text)
    error.__cause__ = RemoteTraceback(told)
    return error
