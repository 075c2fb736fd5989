"""An executor whose workers are executions of an AWS Lambda function, at AWS or at any compatible endpoint.

A task is a synchronous invocation of `millrace.lambda_handler.handler`. Threads of this program wait for the invocations.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Optional, Union

from millrace import _open
from millrace._records import _native
from millrace.executor import Connection, Executor, _cloudpickle, _living, _pools, _task, connect
from millrace.executor._results import fail_inherited, outcome
from millrace.lambda_handler import FORM, PAYLOAD_BYTES_MAX
from millrace.objects import _values

#: How many invocations wait at the same time, unless it is said.
_WORKERS = 64
#: The longest that AWS lets a function run.
_TIMEOUT_S = 900.0
_THROTTLE_TIMEOUT_S = 300.0
#: Pauses between attempts: the first, and the longest. Each is random below that, so that threads do not come back together.
_PAUSE_S, _PAUSE_MAX_S = 0.2, 20.0
#: A request without storage, and a task with storage: what is beyond is not even pickled.
_PICKLED_BYTES_MAX = PAYLOAD_BYTES_MAX // 4 * 3
_STORED_BYTES_MAX = 512 << 20
#: How much longer than a task the program waits for its answer.
_MARGIN_S = 10.0

#: What AWS calls the refusals that pass. Other implementations may only send the status 429.
_THROTTLED = {
    "TooManyRequestsException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "EC2ThrottledException",
    "SlowDown",
}
#: The function is being created or updated.
_NOT_READY = {"ResourceConflictException", "ResourceNotReadyException"}
#: The handler cannot be called.
_UNUSABLE = {
    "Runtime.ImportModuleError",
    "Runtime.HandlerNotFound",
    "Runtime.MalformedHandlerName",
    "Runtime.UserCodeSyntaxError",
    "Runtime.InvalidEntrypoint",
    "Runtime.UnmarshalError",
    "Runtime.MarshalError",
}


def _boto3() -> Any:
    try:
        import boto3
        import botocore.config
        import botocore.exceptions
    except ImportError:
        raise _native.error("MR6105", "calling AWS Lambda needs boto3: pip install 'millrace[lambda]'") from None
    return boto3, botocore


class _Again(Exception):
    """This attempt has no result, and another one may have: `throttled` if the task was not begun."""

    def __init__(self, why: str, *, throttled: bool = False, unreachable: bool = False, after: float = 0.0) -> None:
        super().__init__(why)
        self.throttled, self.unreachable, self.after = throttled, unreachable, after


class LambdaExecutor(Executor):
    """An executor on AWS Lambda, which `Executor(backend="lambda", ...)` returns."""

    _limit_code, _shares = "MR7131", False

    def __init__(
        self,
        place: Union[Connection, _open.PathOrAddress, None] = None,
        *,
        function: Optional[str] = None,
        endpoint: Optional[str] = None,
        region: Optional[str] = None,
        workers: int = _WORKERS,
        timeout: float = _TIMEOUT_S,
        retries: int = _pools.RETRIES,
        throttle_timeout: float = _THROTTLE_TIMEOUT_S,
        storage: Optional[str] = None,
        client: Any = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: tuple[Any, ...] = (),
        **other: Any,
    ) -> None:
        if other:
            raise _native.error("MR7130", f"backend='lambda' has no setting {next(iter(other))!r}")
        if not function:
            raise _native.error("MR7130", "backend='lambda' needs `function`, the name or ARN of a Lambda function")
        if workers < 1 or timeout <= 0 or retries < 0 or throttle_timeout < 0:
            raise _native.error("MR7130", f"{workers=}, {timeout=}, {retries=}, {throttle_timeout=}: one of them is too small")
        self._storage = _bucket(storage)
        boto3, self._botocore = _boto3()
        self._dumps = _cloudpickle().dumps
        _values.pickle_with(self._dumps)
        self._name, self._attempts, self._throttle_s = function, retries + 1, throttle_timeout
        self._client = os.urandom(16)
        self._ids = itertools.count(1)
        self._initializer = (initializer, initargs)
        self._limit = _PICKLED_BYTES_MAX if storage is None else _STORED_BYTES_MAX
        config = _config(self._botocore, workers, timeout)
        try:
            self._lambda = client or boto3.client("lambda", endpoint_url=endpoint, region_name=region, config=config)
            self._s3 = None if storage is None else boto3.client("s3", region_name=region)
        except (self._botocore.exceptions.BotoCoreError, ValueError) as error:
            raise _native.error("MR7130", f"boto3 cannot create a client with these settings: {error}") from error
        self._request: dict[str, Any] = {"millrace": FORM, "timeout": timeout}
        if self._storage is not None:
            self._request["storage"] = self._storage
        self._own = place is not None and not isinstance(place, Connection)
        self._place = place if isinstance(place, Connection) or place is None else connect(place)
        if self._place is not None:
            self._connection = self._place
            if self._place.address.startswith("mr://"):
                self._request |= {"place": self._place.address, "application": self._place.application, "lease": self._place.lease}
            self._place._executors.add(self)
        self._threads = ThreadPoolExecutor(workers, "millrace-lambda")
        self._pending: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._shut = self._inherited = False
        self._stopped = threading.Event()
        _living.add(self)

    def _in_forked_child(self) -> None:
        # Neither its threads nor the connections of boto3 are this process's.
        self._inherited = True
        fail_inherited(list(self._pending))

    def _begin(self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]) -> Sequence[Future[Any]]:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._check_process()
        requests = []
        of: object = None
        shipped: dict[str, str] = {}
        for fn, args, kwargs in calls:
            if not shipped or of is not fn:
                digest, body = self._body(fn)
                shipped, of = {"body": digest.hex(), "code": base64.b64encode(body).decode()}, fn
            id = self._client + next(self._ids).to_bytes(8, "little")
            task = base64.b64encode(self._pickle("the arguments", (args, kwargs))).decode()
            request = json.dumps({**self._request, "id": id.hex(), **shipped, "task": task}).encode()
            if self._storage is None and len(request) > PAYLOAD_BYTES_MAX:
                detail = f"a task of {len(request)} bytes, with its function and its arguments; the limit is {PAYLOAD_BYTES_MAX}"
                raise _native.error("MR7131", detail)
            requests.append((id, request))
        # Nothing has begun if one of them cannot be sent.
        futures = [self._threads.submit(self._run, id, request) for id, request in requests]
        self._pending.update(futures)
        return futures

    def _check_process(self) -> None:
        if self._inherited:
            raise _native.error("MR2015", "an executor on AWS Lambda belongs to the process that this one was forked from; create another one")

    def _run(self, id: bytes, request: bytes) -> Any:
        """Runs a task until an attempt has a result or no attempt is left."""
        if len(request) <= PAYLOAD_BYTES_MAX:
            return self._attempt_all(request)
        bucket, prefix = self._storage or ("", "")
        key = f"{prefix}{id.hex()}.task"
        self._stored("put_object", Bucket=bucket, Key=key, Body=request)
        try:
            return self._attempt_all(json.dumps({"millrace": FORM, "stored": [bucket, key]}).encode())
        finally:
            self._stored("delete_object", Bucket=bucket, Key=key)

    def _attempt_all(self, request: bytes) -> Any:
        lost, pause = 0, _PAUSE_S
        throttled_since: Optional[float] = None
        while True:
            try:
                kind, result = self._answer(self._ask(request))
            except _Again as again:
                if again.throttled:
                    throttled_since = throttled_since or time.monotonic()
                    if time.monotonic() - throttled_since >= self._throttle_s:
                        raise _native.error("MR7133", f"for {self._throttle_s:g} s: {again}") from again.__cause__
                else:
                    lost, throttled_since = lost + 1, None
                    if lost >= self._attempts:
                        code = "MR7136" if again.unreachable else "MR7135"
                        raise _native.error(code, f"after {lost} attempt{'s' * (lost > 1)}: {again}") from again.__cause__
                if self._stopped.wait(max(again.after, random.uniform(pause / 2, pause))):
                    raise _native.error("MR7135", f"the executor was shut down before another attempt: {again}") from again.__cause__
                pause = min(2 * pause, _PAUSE_MAX_S)
            else:
                return outcome(kind, result)

    def _ask(self, request: bytes) -> bytes:
        """One invocation; the bytes of its answer."""
        failures = self._botocore.exceptions
        try:
            answer = self._lambda.invoke(FunctionName=self._name, InvocationType="RequestResponse", Payload=request)
            found: bytes = answer["Payload"].read()
            return found
        except failures.ClientError as error:
            self._refused(error)
            raise
        except failures.ReadTimeoutError as error:
            raise _native.error("MR7134", f"no answer in time; the limit is {self._request['timeout']:g} s") from error
        except (failures.EndpointConnectionError, failures.ConnectTimeoutError, failures.ProxyConnectionError) as error:
            raise _Again(str(error), unreachable=True) from error
        except (failures.HTTPClientError, failures.IncompleteReadError, failures.ResponseStreamingError, ConnectionError) as error:
            raise _Again(str(error)) from error
        except failures.BotoCoreError as error:
            raise _native.error("MR7136", str(error)) from error

    def _refused(self, error: Any) -> None:
        """Raises the exception for an error answer."""
        code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
        about = error.response.get("ResponseMetadata", {})
        status, headers = about.get("HTTPStatusCode", 0), about.get("HTTPHeaders", {})
        said = f"{code}: {message}" if message else f"status {status}"
        if status == 429 or code in _THROTTLED or code in _NOT_READY:
            wait = headers.get("retry-after", "")
            raise _Again(said, throttled=True, after=min(float(wait), _PAUSE_MAX_S) if wait.isdigit() else 0.0) from error
        if status >= 500:
            raise _Again(said) from error
        if status == 413 or code == "RequestTooLargeException":
            raise _native.error("MR7131", said) from error
        raise _native.error("MR7136", f"function '{self._name}': {said}") from error

    def _answer(self, payload: bytes) -> tuple[int, bytes]:
        """The answer of the handler, or an error if Lambda's runtime answered in its place."""
        try:
            answer = json.loads(payload)
        except ValueError:
            answer = payload.decode(errors="replace")
        if isinstance(answer, dict) and answer.get("millrace") == FORM:
            if "stored" not in answer:
                return answer["kind"], base64.b64decode(answer["result"])
            bucket, key = answer["stored"]
            stored = json.loads(self._stored("get_object", Bucket=bucket, Key=key)["Body"].read())
            self._stored("delete_object", Bucket=bucket, Key=key)
            return stored["kind"], base64.b64decode(stored["result"])
        kind, message = "", str(answer)[:1000]
        if isinstance(answer, dict):
            kind, message = str(answer.get("errorType", "")), str(answer.get("errorMessage", answer))[:1000]
        if "Task timed out after" in message:
            raise _native.error("MR7134", f"function '{self._name}': {message}")
        if kind not in _UNUSABLE and kind.startswith(("Runtime.", "Sandbox.", "Extension.", "Function.")):
            raise _Again(f"{kind}: {message}")
        raise _native.error("MR7132", f"function '{self._name}': {kind}{': ' * bool(kind)}{message}")

    def _stored(self, method: str, **of: Any) -> Any:
        """A request to the storage; boto3 repeats those that fail for a moment."""
        try:
            return getattr(self._s3, method)(**of)
        except (self._botocore.exceptions.ClientError, self._botocore.exceptions.BotoCoreError) as error:
            raise _native.error("MR7136", f"storage s3://{of['Bucket']}/{of['Key']}: {error}") from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more tasks. With `wait`, returns when all tasks have ended. Running invocations cannot be cancelled."""
        self._shut = True
        if self._inherited:
            return
        if cancel_futures:
            self._stopped.set()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self._end()
        else:
            threading.Thread(target=self._end_later, name="millrace-shutdown", daemon=True).start()

    def _end_later(self) -> None:
        self._threads.shutdown(wait=True)
        self._end()

    def _end(self) -> None:
        if self._place is not None:
            self._place._executors.discard(self)
            if self._own:
                self._place.close()

    def __repr__(self) -> str:
        return f"<millrace.Executor of function {self._name!r} at {self._lambda.meta.endpoint_url!r}>"


def _config(botocore: Any, workers: int, timeout: float) -> Any:
    """Settings of the client. Its own retries are off, because only this class knows which attempts can be repeated."""
    agent = f"millrace python/{sys.version_info[0]}.{sys.version_info[1]}"
    return botocore.config.Config(
        retries={"total_max_attempts": 1},
        max_pool_connections=workers,
        connect_timeout=10,
        read_timeout=timeout + _MARGIN_S,
        tcp_keepalive=True,
        user_agent_extra=agent,
    )


def _bucket(storage: Optional[str]) -> Optional[tuple[str, str]]:
    """The bucket and the prefix of keys."""
    if storage is None:
        return None
    scheme, _, path = storage.partition("://")
    bucket, _, prefix = path.partition("/")
    if scheme != "s3" or not bucket:
        raise _native.error("MR7130", f"storage={storage!r} is not of the form 's3://BUCKET/PREFIX'")
    return bucket, f"{prefix.rstrip('/')}/" if prefix else ""


__all__ = ["LambdaExecutor"]
