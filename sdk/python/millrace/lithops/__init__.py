"""Millrace as compute and storage back end of Lithops. The package `millrace-lithops` installs it where Lithops looks for back ends.

    lithops:
      mode: serverless
      storage: millrace
    serverless:
      backend: millrace
    millrace:
      place: /srv/farm/.millrace

A call of Lithops is a task of a pool, and an object in a bucket is a blob with an entry in a shared index. The blobs and the index are in
the memory of the host, and are lost when it ends. `place` is as in `millrace.connect`; without it, the program starts a private host.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os

from millrace import objects
from millrace.threading import _runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any, Optional

    from millrace.executor import Connection, Executor
    from millrace.objects import _spaces

__all__ = ["ServerlessBackend", "StorageBackend", "load_config", "run"]

_log = logging.getLogger("millrace")
#: The defaults of the section `millrace` of the configuration; memory in MiB, times in seconds.
DEFAULTS = {
    "runtime": "python",
    "runtime_memory": 1024,
    "runtime_timeout": 600,
    # More than processors: a call may wait for the result of another one, and has its worker meanwhile.
    "max_workers": min(64, max(16, os.cpu_count() or 1)),
    "invoke_pool_threads": 4,
    "worker_processes": 1,
    "storage_bucket": "lithops",
}
#: How often Lithops asks for results.
_MONITORING_INTERVAL_S = 0.1
#: Data are written in parts of this size.
_PART_BYTES = 1 << 20
#: How often an object is read again if it is replaced meanwhile.
_ATTEMPTS_MAX = 100
#: Above every character that a key may have.
_LAST = "\U0010ffff"

_connections: dict[str, Connection] = {}


def _connection(place: Optional[str]) -> Connection:
    """The connection of this process to a place; objects that it makes stay until the host ends."""
    if _runtime.in_task():
        raise NotImplementedError("millrace: a call of Lithops cannot start other calls; start them in the program")
    found = _connections.get(place or "")
    if found is None:
        import millrace

        found = millrace.connect(place, app="")
        if not _connections:
            atexit.register(_close)
        _connections[place or ""] = _connections[found.address] = found
    return found


def _close() -> None:
    for connection in {id(one): one for one in _connections.values()}.values():
        for executor in list(connection._executors):
            executor.shutdown(wait=False, cancel_futures=True)
            connection._executors.discard(executor)
        connection.close()
    _connections.clear()


def load_config(config: dict[str, Any]) -> None:
    """Completes a configuration of Lithops."""
    section = config["millrace"] = {**DEFAULTS, **(config.get("millrace") or {})}
    if section["worker_processes"] != 1:
        raise ValueError("millrace: worker_processes must be 1: a task is one process; raise max_workers instead")
    config["lithops"].setdefault("monitoring_interval", _MONITORING_INTERVAL_S)
    if not _runtime.in_task():
        # Lithops starts processes that clean up: they must reach the same host.
        section["place"] = _connection(section.get("place")).address


class StorageBackend:
    """Buckets of objects in the memory of a host."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._space: Optional[_spaces.Space] = None
        if not _runtime.in_task():
            self._space = _connection(config.get("place")).space

    def _index(self, bucket: str) -> objects.SortedDict:
        return objects.SortedDict(f"lithops/{bucket}", space=self._space)

    def _blob(self, key: str) -> objects.Blob:
        return objects.Blob(key, space=self._space)

    def _missing(self, bucket: str, key: str) -> Exception:
        from lithops.storage.utils import StorageNoSuchKeyError

        return StorageNoSuchKeyError(bucket, key)  # type: ignore[no-any-return]

    def get_client(self) -> Any:
        """This object under the names of a client of boto3."""
        return _Client(self)

    def generate_bucket_name(self) -> str:
        """The bucket that is used when the configuration names none."""
        return str(DEFAULTS["storage_bucket"])

    def create_bucket(self, bucket_name: str) -> None:
        """Creates a bucket unless it exists."""
        objects.Set("lithops-buckets", space=self._space).add(bucket_name)

    def head_bucket(self, bucket_name: str) -> dict[str, Any]:
        """Raises an error unless the bucket exists."""
        if bucket_name not in objects.Set("lithops-buckets", space=self._space) and len(self._index(bucket_name)) == 0:
            raise self._missing(bucket_name, "")
        return {"ResponseMetadata": {"HTTPStatusCode": 200}}

    def put_object(self, bucket_name: str, key: str, data: Any) -> None:
        """Writes an object, or replaces the one with this key."""
        if isinstance(data, str):
            data = data.encode()
        stream = data if hasattr(data, "read") else io.BytesIO(data)
        name = _runtime.new_key("lithops-object")
        blob, size = self._blob(name), 0
        while part := stream.read(_PART_BYTES):
            part = part.encode() if isinstance(part, str) else part
            blob.write(size, part)
            size += len(part)
        # Only what was written whole can be found.
        index = self._index(bucket_name)
        before = index.get(key)
        index[key] = [size, name]
        if before is not None:
            self._blob(before[1]).truncate(0)

    def get_object(
        self, bucket_name: str, key: str, stream: bool = False, extra_get_args: Optional[dict[str, Any]] = None
    ) -> Any:
        """Reads an object, or the bytes that `Range` names."""
        asked = str((extra_get_args or {}).get("Range", "")).removeprefix("bytes=")
        for _ in range(_ATTEMPTS_MAX):
            found = self._index(bucket_name).get(key)
            if found is None:
                break
            size, name = found
            first, last = 0, size - 1
            if asked:
                begin, _, end = asked.partition("-")
                # A range without a beginning is that many bytes at the end.
                first = int(begin) if begin else max(0, size - int(end))
                last = min(last, int(end)) if begin and end else last
            data, blob = bytearray(), self._blob(name)
            while len(data) <= last - first:
                part = blob.read(first + len(data), min(_PART_BYTES, last - first + 1 - len(data)))
                if not part:
                    break
                data += part
            if len(data) == max(0, last - first + 1):
                return io.BytesIO(bytes(data)) if stream else bytes(data)
        raise self._missing(bucket_name, key)

    def upload_file(
        self, file_name: str, bucket: str, key: Optional[str] = None, extra_args: Any = None, config: Any = None
    ) -> bool:
        """Writes a file's content; returns whether that was possible."""
        try:
            with open(file_name, "rb") as file:
                self.put_object(bucket, os.path.basename(file_name) if key is None else key, file)
        except Exception as error:
            _log.error("upload of '%s': %s", file_name, error)
            return False
        return True

    def download_file(
        self, bucket: str, key: str, file_name: Optional[str] = None, extra_args: Any = None, config: Any = None
    ) -> bool:
        """Reads an object into a file; returns whether that was possible."""
        target = key if file_name is None else file_name
        try:
            os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
            data = self.get_object(bucket, key)
            with open(target, "wb") as file:
                file.write(data)
        except Exception as error:
            _log.error("download of '%s': %s", key, error)
            return False
        return True

    def head_object(self, bucket_name: str, key: str) -> dict[str, str]:
        """The size of an object."""
        found = self._index(bucket_name).get(key)
        if found is None:
            raise self._missing(bucket_name, key)
        return {"content-length": str(found[0])}

    def delete_object(self, bucket_name: str, key: str) -> None:
        """Deletes an object, if it exists."""
        found = self._index(bucket_name).pop(key, None)
        if found is not None:
            self._blob(found[1]).truncate(0)

    def delete_objects(self, bucket_name: str, key_list: list[str]) -> None:
        """Deletes objects."""
        for key in key_list:
            self.delete_object(bucket_name, key)

    def list_objects(
        self, bucket_name: str, prefix: Optional[str] = None, match_pattern: Optional[str] = None
    ) -> list[dict[str, Any]]:
        """Keys and sizes of the objects whose keys begin with the prefix."""
        prefix = prefix or ""
        found = self._index(bucket_name).range(prefix, prefix + _LAST)
        return [{"Key": key, "Size": size} for key, (size, _) in found]

    def list_keys(self, bucket_name: str, prefix: Optional[str] = None) -> list[str]:
        """Keys that begin with the prefix."""
        return [found["Key"] for found in self.list_objects(bucket_name, prefix)]


class _Client:
    def __init__(self, backend: StorageBackend) -> None:
        self._backend = backend

    def put_object(self, Bucket: str, Key: str, Body: Any, **_: Any) -> None:
        self._backend.put_object(Bucket, Key, Body)

    def get_object(self, Bucket: str, Key: str, **named: Any) -> dict[str, Any]:
        return {"Body": self._backend.get_object(Bucket, Key, stream=True, extra_get_args=named)}

    def list_objects(self, Bucket: str, Prefix: Optional[str] = None, **_: Any) -> list[dict[str, Any]]:
        return self._backend.list_objects(Bucket, Prefix)

    list_objects_v2 = list_objects


def run(payload: dict[str, Any]) -> None:
    """Runs calls of Lithops in a task."""
    # Configurations that name this back end are understood in calls, too.
    import lithops.serverless.backends.millrace
    from lithops.worker import handler, utils

    # The sandbox shows nothing of the machine that psutil could measure.
    utils.psutil_found = utils.psutil_found and os.path.exists("/proc/stat")
    # A process that it forked would speak to the host over the worker's connection; a thread waits for its turn.
    handler.is_unix_system = lambda: False
    os.environ["__LITHOPS_BACKEND"] = "millrace"
    os.environ["__LITHOPS_ACTIVATION_ID"] = _runtime.new_key("")[1:13]
    handler.function_handler(payload)


def _metadata() -> dict[str, Any]:
    from lithops.worker.utils import get_runtime_metadata

    return get_runtime_metadata()  # type: ignore[no-any-return]


class ServerlessBackend:
    """Runs calls of Lithops as tasks of a pool."""

    def __init__(self, config: dict[str, Any], internal_storage: Any) -> None:
        self.name, self.type = "millrace", "faas"
        self._config = config
        self._calls: dict[str, list[Future[None]]] = {}
        self._executor: Optional[Executor] = None

    def _workers(self) -> Executor:
        if self._executor is None or self._executor._shut:
            self._executor = _connection(self._config.get("place")).Executor(
                workers=self._config["max_workers"],
                memory=self._config["runtime_memory"] << 20,
                timeout=float(self._config["runtime_timeout"]),
                # Lithops tries again by itself.
                retries=0,
            )
        return self._executor

    def build_runtime(self, runtime_name: str, file: Optional[str], extra_args: Any = ()) -> None:
        """Not supported: tasks run on the workers' interpreter."""
        raise NotImplementedError("millrace: there are no images to build; tasks run the interpreter of the program")

    def deploy_runtime(self, runtime_name: str, memory: int, timeout: int) -> dict[str, Any]:
        """The packages of the workers."""
        return self._workers().submit(_metadata).result()

    def delete_runtime(self, runtime_name: str, memory: int, version: str = "") -> None:
        """Does nothing: there are no images."""

    def clean(self, **_: Any) -> None:
        """Cancels the calls that have not begun."""
        self.clear()

    def clear(self, job_keys: Any = None) -> None:
        """Cancels the calls of these jobs that have not begun."""
        for job in list(self._calls) if job_keys is None else job_keys:
            for call in self._calls.pop(job, ()):
                call.cancel()

    def list_runtimes(self, runtime_name: str = "all") -> list[Any]:
        """None: there are no images."""
        return []

    def invoke(self, runtime_name: str, memory: int, payload: dict[str, Any]) -> str:
        """Submits calls."""
        future = self._workers().submit(run, payload)
        self._calls.setdefault(payload["job_key"], []).append(future)
        future.add_done_callback(_tell)
        return _runtime.new_key("call")

    def get_runtime_key(self, runtime_name: str, memory: int, version: str = "") -> str:
        """The name under which Lithops remembers what the workers have installed."""
        return os.path.join(self.name, version, f"{runtime_name}-{memory}")

    def get_runtime_info(self) -> dict[str, Any]:
        """The limits of calls."""
        return {
            "runtime_name": self._config["runtime"],
            "runtime_memory": self._config["runtime_memory"],
            "runtime_timeout": self._config["runtime_timeout"],
            "max_workers": self._config["max_workers"],
        }


def _tell(future: Future[None]) -> None:
    with contextlib.suppress(Exception):
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("a call of Lithops ended without a result: %s", error)
