"""The handler of AWS Lambda functions that run tasks of `millrace.Executor(backend="lambda")`: `millrace.lambda_handler.handler`.

    python -m millrace.lambda_handler function.zip

writes a package to deploy. A request and an answer are JSON. If one is too long, it is stored in S3, and the JSON has its bucket and key:

    request   millrace: 1, id: the task's, body: digest of the function, code: the function, task: pickled (args, kwargs), timeout: seconds,
              place: address of a host, application, lease, storage: where a long answer goes
    answer    millrace: 1, id, kind: as in `millrace.executor._task`, result: pickled

Bytes are in base64. The function needs this package and `cloudpickle`, and boto3 for data in S3, which the runtimes of AWS include.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

# Tasks are pickled with it. If it is missing, the function's first line of log says so.
import cloudpickle as _cloudpickle  # noqa: F401

from millrace._namespace import RemoteNamespace
from millrace.executor import _task
from millrace.objects import _raised, _spaces

__all__ = ["handler"]

#: The form of requests and answers.
FORM = 1
#: What AWS Lambda takes and gives, less what surrounds an answer.
PAYLOAD_BYTES_MAX = (6 << 20) - 4096
#: Before the function's own limit ends the process, the task has to end.
_MARGIN_S = 0.25


class _Expired(BaseException):
    """The task takes too long."""


class _NoSpace(_spaces.Space):
    """Shared objects of a task that can reach no host."""

    def call(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(
            "this task cannot use shared objects: give the executor the address of their host, as in "
            'Executor("mr://HOST:PORT/NAMESPACE", backend="lambda", ...)'
        )


class _AttemptSpace(_spaces.ClientSpace):
    """Shared objects of a task, over a connection. All attempts use the same session, so each call takes effect once.

    The session ends by its lease, and not with the attempt: the answer may be lost, and then another attempt asks again.
    """

    def __init__(self, remote: Any, application: str, lease: float, id: bytes) -> None:
        self._id = id
        super().__init__(remote, application, lease, session=hashlib.sha256(id).digest()[:16])

    def close(self, well: bool = True) -> None:
        self._closed.set()


def handler(event: Any, context: Any) -> Any:
    """Runs a task. Configure it as the function's handler."""
    if not isinstance(event, dict) or "millrace" not in event:
        return {"millrace": FORM, "kind": _task.FAILED, "result": _text("MR7132the request is not a task of a millrace.Executor")}
    if event["millrace"] != FORM:
        detail = f"MR7132the function takes requests of form {FORM}, and the program sends form {event['millrace']}"
        return {"millrace": FORM, "kind": _task.FAILED, "result": _text(detail)}
    if "stored" in event:
        event = json.loads(_get(*event["stored"]))
    id = bytes.fromhex(event["id"])
    kind, result = _run(id, event, context)
    answer = {"millrace": FORM, "id": event["id"], "kind": kind, "result": base64.b64encode(result).decode()}
    length = len(answer["result"])
    if length <= PAYLOAD_BYTES_MAX:
        return answer
    storage = event.get("storage")
    if storage is None:
        detail = f"MR7131a result of {len(result)} bytes; the limit is {PAYLOAD_BYTES_MAX * 3 // 4}"
        return {**answer, "kind": _task.FAILED, "result": _text(detail)}
    bucket, key = storage[0], f"{storage[1]}{event['id']}.result"
    _s3().put_object(Bucket=bucket, Key=key, Body=json.dumps(answer).encode())
    return {"millrace": FORM, "id": event["id"], "stored": [bucket, key]}


def _run(id: bytes, event: dict[str, Any], context: Any) -> tuple[int, bytes]:
    """The return value or the exception of the task."""
    _task.begin(id)
    try:
        with _limited(event["timeout"], context), _objects(id, event):
            function = _task.open_body(event["body"], lambda: base64.b64decode(event["code"]))
            args, kwargs = _task.load(base64.b64decode(event["task"]))
            return _task.RETURNED, _task.pickle_result(function(*args, **kwargs))
    except _Expired as expired:
        return _task.FAILED, f"MR7134{expired}".encode()
    except BaseException as error:
        return _task.RAISED, _raised.pack(error, __file__)
    finally:
        _task.end()


@contextlib.contextmanager
def _limited(timeout: float, context: Any) -> Iterator[None]:
    """Ends the task in time, so that its environment can run the next one. Only the main thread can be interrupted so."""
    limit, whose = timeout, "the executor's `timeout`"
    left = context.get_remaining_time_in_millis() / 1e3 - _MARGIN_S
    if left < limit:
        limit, whose = left, "the Lambda function's own limit"
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(*_: object) -> None:
        raise _Expired(f"the task ran for {limit:.1f} s and was ended: this is {whose}")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(limit, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _objects(id: bytes, event: dict[str, Any]) -> Iterator[None]:
    """Shared objects for the time of a task."""
    place = event.get("place")
    if place is None:
        _spaces.use(_NoSpace())
        yield
        return
    remote = RemoteNamespace(place, None)
    try:
        space = _AttemptSpace(remote, event["application"], event["lease"], id)
        _spaces.use(space)
        try:
            yield
        finally:
            space.close()
    finally:
        remote.close()


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _s3() -> Any:
    import boto3

    return boto3.client("s3")


def _get(bucket: str, key: str) -> bytes:
    found: bytes = _s3().get_object(Bucket=bucket, Key=key)["Body"].read()
    return found
