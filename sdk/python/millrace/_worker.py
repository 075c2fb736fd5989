"""Runs a Python function for a Millrace host. Needs Python 3.9 or later, and no packages.

The host starts this file, behind those of `_errors` and `_work`, once per deployed function, as its *zygote*: it imports the handler's module
and then forks a worker whenever the host requests one. A worker uses the protocol of spec/protocol/worker.md on descriptor 3.
"""

from __future__ import annotations

import abc
import gc
import importlib.util
import inspect
import io
import json
import os
import socket
import struct
import sys
import traceback
import types

from millrace._errors import (
    Busy as Busy,
    Conflict as Conflict,
    Damaged as Damaged,
    Denied as Denied,
    Error as Error,
    FunctionFailed as FunctionFailed,
    Gone as Gone,
    Invalid as Invalid,
    Missing as Missing,
    NotFound as NotFound,
    StorageFailed as StorageFailed,
    TimedOut as TimedOut,
    Unavailable as Unavailable,
    error_of as error_of,
)
from millrace._errors._explain import explain, plain, result_of
from millrace._work._channel import APPEND, CLASS, DONE, FIELDS, GET, HELLO, LATEST, NOW, OUTPUT, OVER, RANDOM, TABLE, Channel
from millrace._work._streams import serve
from millrace._work._tables import Table as Table, TableEntry as TableEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Optional, TypeVar, Union

    Handler = Callable[["Record", "Context"], object]
    H = TypeVar("H", bound=Handler)

_CHANNEL = 3
_WINDOW_BYTES = 256 << 10
_PROTOCOL_VERSION = 4
# A request of spec/protocol/table.md
_EXTERNALIZE = b"\x08"

# One byte, then a path or a pid.
_REQUEST_BYTES_MAX = 8 << 10
# seqno, id (low, high), attempt, flags
_WORK_FIXED = struct.Struct("<QQQII")
_STREAMED = 1
# The kinds of work: the number of WORK.
_RUN, _STEP = 1, 2

# Codes of spec/errors.toml.
_MEMORY_EXCEEDED = 3108
_RAISED = b"MR3110"
_OUT_OF_MEMORY = b"MR3108"
_IMPORT_FAILED = 3115
_HANDLER_MISSING = 3116
_HANDLER_INVALID = 3117
_PYTHON_UNUSABLE = 3118
_IMPORT_USES_NAMESPACE = 3142

_NAME_BYTES_MAX = 255
_RECORD_BYTES_MAX = 16 << 20

#: The module of a function, while it is imported. The package does not open namespaces meanwhile: the module is imported whenever the
#: function is started or checked, so a program that deploys a function of its own would run again and again.
importing: Optional[str] = None


class Settings:
    """The settings of a function's decorator; None means the default of millrace.toml."""

    __slots__ = ("name", "on", "options")

    def __init__(self, name: Optional[str], on: Sequence[str], options: Mapping[str, Any]) -> None:
        self.name = name
        self.on = tuple(on)
        self.options = {key: value for key, value in options.items() if value is not None}

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"Settings(name={self.name!r}, on={self.on!r}{options})"


def function(
    *,
    on: Union[str, Sequence[str]] = (),
    name: Optional[str] = None,
    concurrency: int = 1,
    ordered: Optional[bool] = None,
    monitor: Optional[str] = None,
    timeout: Optional[float] = None,
    memory: Optional[int] = None,
    output: Optional[int] = None,
    retries: Optional[int] = None,
    backoff: Optional[float] = None,
    dead_letter: Optional[str] = None,
    pending_max: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
    python: Optional[str] = None,
    streamed: Optional[bool] = None,
    isolation: Optional[str] = None,
    table_mode: Optional[str] = None,
    network: Optional[bool] = None,
    reads: Optional[Sequence[str]] = None,
    appends: Optional[Sequence[str]] = None,
    sends: Sequence[str] = (),
    secrets: Sequence[str] = (),
) -> Callable[[H], H]:
    """Sets how a function is deployed, and returns the function unchanged.

        @millrace.function(on="raw", retries=5)
        def smooth(record: millrace.Record, ctx: millrace.Context) -> None:
            ctx.append("clean", record.json()["celsius"])

    The names are those of millrace.toml; times are in seconds and sizes in bytes. Runs are executed in order, unless
    `concurrency` is more than 1.
    """
    options = {
        "concurrency": concurrency,
        "ordered": concurrency == 1 if ordered is None else ordered,
        "monitor": monitor,
        "timeout": timeout,
        "memory": memory,
        "output": output,
        "retries": retries,
        "backoff": backoff,
        "dead_letter": dead_letter,
        "pending_max": pending_max,
        "env": dict(env) if env is not None else None,
        "python": python,
        "streamed": streamed,
        "isolation": isolation,
        "table_mode": table_mode,
        "network": network,
        "reads": None if reads is None else list(reads),
        "appends": None if appends is None else list(appends),
        "sends": list(sends) or None,
        "secrets": list(secrets) or None,
    }
    settings = Settings(name, (on,) if isinstance(on, str) else on, options)

    def decorate(handler: H) -> H:
        handler.__millrace__ = settings  # type: ignore[attr-defined]
        return handler

    return decorate


# The names that `import millrace` has in a worker, even if the package is not installed.
OFFERED = (
    "Busy",
    "Conflict",
    "Context",
    "Damaged",
    "Denied",
    "Error",
    "FunctionFailed",
    "Gone",
    "Invalid",
    "Missing",
    "NotFound",
    "Record",
    "StorageFailed",
    "TimedOut",
    "Unavailable",
    "function",
)


def encode(data: object) -> bytes:
    """The bytes to append: bytes as they are, text as UTF-8, anything else as compact JSON."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=plain).encode()


class Record(metaclass=abc.ABCMeta):
    """A record of a log: the name of the log (`log`), the number (`seqno`) and the bytes (`data`)."""

    __slots__ = ("log", "seqno", "data")

    def __init__(self, log: str, seqno: int, data: bytes) -> None:
        self.log = log
        self.seqno = seqno
        self.data = data

    @property
    def topic(self) -> Optional[str]:
        """The topic that it was published to, if the function runs for a topic; None for the record of a log."""
        return self.log.split("/", 2)[2] if self.log.startswith("_topic/") else None

    def text(self) -> str:
        """The record as UTF-8 text."""
        return self.data.decode()

    def json(self) -> Any:
        """The record as JSON."""
        return json.loads(self.data)

    def __repr__(self) -> str:
        return f"Record({self.log!r}, {self.seqno}, {self.data[:40]!r}{'...' if len(self.data) > 40 else ''})"


class Context:
    """The calls of a function to its namespace during a run.

    `attempt` is the number of the attempt, from 1. A function with effects outside of the namespace passes `idempotency_key` with them, so
    that a further attempt does not repeat an effect.
    """

    __slots__ = ("_channel", "_id", "_streamed", "attempt")

    def __init__(self, channel: Channel, run_id: int, attempt: int, streamed: bool) -> None:
        self._channel: Optional[Channel] = channel
        self._id = run_id
        self._streamed = streamed
        self.attempt = attempt

    @property
    def run(self) -> str:
        """The run's id, which is the cause of the records that it appends."""
        if not self._id:
            return "-"
        return f"{self._id >> 80:012x}-{self._id >> 56 & 0xFFFFFF:x}-{self._id & (1 << 56) - 1:x}"

    cause = run

    @property
    def idempotency_key(self) -> str:
        """The run's id, which is unique, and the same in every attempt and after every restart."""
        return self.run

    def append(self, log: str, data: object) -> Optional[int]:
        """Appends bytes, text, or anything that JSON can express. The record becomes visible when the run succeeds; returns None.

        In a streamed function, the record is visible at once, and the call returns its seqno. If the append is refused, the call raises an
        exception, and the run fails.
        """
        payload = encode(data)
        if len(payload) > _RECORD_BYTES_MAX:
            raise error_of("MR1004", f"a record of {len(payload)} bytes; the limit is {_RECORD_BYTES_MAX}")
        if self._streamed:
            return int.from_bytes(self._ask(APPEND, log, payload), "little")
        channel = self._open()
        channel.stage(self, channel.frame(APPEND, 0, _log_name(log), payload))
        return None

    def get(self, log: str, seqno: int) -> Record:
        """A record of a log, as of the beginning of the run; in a streamed function, as it is now."""
        if not 0 <= seqno < 1 << 64:
            raise error_of("MR1003", f"{seqno} is not a sequence number")
        return Record(log, seqno, self._ask(GET, log, seqno.to_bytes(8, "little")))

    def latest(self, log: str) -> int:
        """The seqno of the newest record of a log, 0 if it has none: as of the beginning of the run, or streamed now."""
        return int.from_bytes(self._ask(LATEST, log), "little")

    def table(self, name: str) -> Table:
        """A table as a mapping: as of the beginning of the run, with the run's own changes. They become visible when the run succeeds.

        If another run has changed a key meanwhile that this one has read and changed, this run is repeated.
        """
        return Table(self._ask_table, name)

    def _ask_table(self, name: str, request: bytes) -> bytes:
        return self._ask(TABLE, name, request)

    def externalize(self) -> None:
        """Waits until the databases of tables have everything that the run has read, and in a streamed function what it has published.

        What an atomic run itself changes does not exist before its end: put what depends on that into the next function. If the databases do
        not have it within 30 seconds, the call raises an exception, and the run is repeated.
        """
        self._ask(TABLE, payload=_EXTERNALIZE)

    def now(self) -> float:
        """Seconds since 1970: when the attempt began, or now in a streamed run."""
        return int.from_bytes(self._ask(NOW), "little") / 1e9

    def random(self, n: int) -> bytes:
        """Random bytes, at most 65536."""
        return self._ask(RANDOM, payload=n.to_bytes(4, "little"))

    def secret(self, name: str) -> str:
        """A secret that the function's definition names. Bytes that are not UTF-8 are decoded as by `os.fsdecode`."""
        folder = os.environ.get("MILLRACE_SECRETS")
        try:
            if folder is None or "/" in name:
                raise FileNotFoundError
            with open(os.path.join(folder, name), "rb") as file:
                return os.fsdecode(file.read())
        except (FileNotFoundError, IsADirectoryError, ValueError):
            raise error_of("MR3130", f"the function may not read secret '{name}'") from None

    def _fields(self) -> bytes:
        """The fields of the object whose method runs."""
        return self._ask(FIELDS)

    def _class(self, number: int) -> bytes:
        """The class with this number of the pool of that object."""
        return self._ask(CLASS, payload=number.to_bytes(8, "little"))

    def _ask(self, kind: int, log: str = "", payload: bytes = b"") -> bytes:
        channel = self._open()
        return channel.ask(self, channel.frame(kind, 0, _log_name(log), payload))

    def _call_object(self, call: bytes) -> bytes:
        """Calls a shared object; the answer may take a long time."""
        return self._open().call(self, call)

    def _call_object_later(self, call: bytes) -> Any:
        """The same within an event loop: the future of the answer. Any number of calls may wait."""
        return self._open().call_later(self, call)

    def _open(self) -> Channel:
        channel = self._channel
        if channel is None:
            raise RuntimeError(OVER)
        if channel.forked:
            raise RuntimeError("a forked child cannot use the context of the run")
        return channel


def _log_name(log: str) -> bytes:
    name = log.encode()
    if len(name) > _NAME_BYTES_MAX:
        raise error_of("MR1001", f"a log name of {len(name)} bytes; the limit is {_NAME_BYTES_MAX}")
    return name


class _Printed(io.RawIOBase):
    """Standard output and error: printed text goes through the channel, so that it is assigned to the right run."""

    def __init__(self, channel: Channel, fd: int) -> None:
        self._channel = channel
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, printed: Any) -> int:
        data = bytes(printed)
        if self._channel.forked:
            return os.write(self._fd, data)
        self._channel.flush(self._channel.frame(OUTPUT, 0, payload=data))
        return len(data)


def _stream(channel: Channel, fd: int) -> io.TextIOWrapper:
    buffered = io.BufferedWriter(_Printed(channel, fd))
    return io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _work(channel: Channel, handler: Handler) -> None:
    """Runs the handler for every run, and its `__millrace_step__` for every method. Each work's frames are written before the next one begins.

    A handler with `__millrace_stream__` runs that for every stream instead, `__millrace_streams__` of them at once."""
    action: Any = getattr(handler, "__millrace_stream__", None)
    if action is not None:
        serve(channel, action, getattr(handler, "__millrace_streams__", 8))
    stdout, stderr = sys.stdout, sys.stderr
    fixed, next_work, close, flush = _WORK_FIXED.unpack_from, channel.next_work, channel.close, channel.flush
    step: Any = getattr(handler, "__millrace_step__", None)
    # window, works at once, a bit for each kind of work, features
    hello = struct.pack("<IHHI", _WINDOW_BYTES, 1, 1 if step is None else 3, 0)
    channel.flush(channel.frame(HELLO, _PROTOCOL_VERSION, payload=hello))
    while True:
        kind, body = next_work()
        seqno, run_low, run_high, attempt, flags = fixed(body, 2)
        log_end = 34 + (body[0] | body[1] << 8)
        context = Context(channel, run_high << 64 | run_low, attempt, flags & _STREAMED != 0)
        try:
            if kind == _STEP:
                done = channel.frame(DONE, 0, payload=step(body[log_end:], context))
            else:
                returned = handler(Record(body[34:log_end].decode(), seqno, body[log_end:]), context)
                done = channel.frame(DONE, 0, payload=b"" if returned is None else result_of(returned, stdout))
        except BaseException as error:
            code = _OUT_OF_MEMORY if isinstance(error, MemoryError) else _RAISED
            message = explain(error).encode(errors="backslashreplace")
            done = channel.frame(DONE, 0, code, message)
        if channel.forked:
            os.write(2, b"[a child that the function forked returned from the function, and was ended]\n")
            os._exit(1)
        close(context)
        try:
            stdout.flush()
            stderr.flush()
        except ValueError:
            pass  # The function closed them; what it prints next raises in its own code.
        flush(done)


def _die_with_parent(parent: int) -> None:
    """Asks the kernel for SIGKILL when the zygote dies. Without ctypes, the worker ends when the channel is closed."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass
    if os.getppid() != parent:
        os._exit(1)


def _become_worker(zygote: int, channel_fd: int, printed_fd: int, directory: bytes, handler: Handler) -> None:
    os.setpgid(0, 0)
    if directory:
        os.chdir(directory)
    _die_with_parent(zygote)
    os.dup2(printed_fd, 1)
    os.dup2(printed_fd, 2)
    os.dup2(channel_fd, _CHANNEL, inheritable=False)
    os.close(printed_fd)
    os.close(channel_fd)
    channel = Channel(_CHANNEL)
    sys.stdout, sys.stderr = _stream(channel, 1), _stream(channel, 2)

    def in_forked_child() -> None:
        channel.forked = True
        os.close(_CHANNEL)
        if channel._socket is not None:
            channel._socket.close()

    os.register_at_fork(after_in_child=in_forked_child)
    _work(channel, handler)


def _load(directory: str, module_name: str, function_name: str) -> tuple[Optional[Handler], int, str]:
    """The handler, or the number of an error code and a detail."""
    if sys.version_info < (3, 9):
        return None, _PYTHON_UNUSABLE, f"{sys.executable} is Python {sys.version.split()[0]}; 3.9 is needed"
    global importing
    sys.path.insert(0, directory)
    _offer_millrace()
    importing = module_name
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        if getattr(error, "code", None) == f"MR{_IMPORT_USES_NAMESPACE}":
            return None, _IMPORT_USES_NAMESPACE, f"cannot import '{module_name}': {explain(error)}"
        code = _MEMORY_EXCEEDED if isinstance(error, MemoryError) else _IMPORT_FAILED
        return None, code, f"cannot import '{module_name}': {explain(error)}"
    finally:
        importing = None
    try:
        handler = getattr(module, function_name)
    except AttributeError:
        return None, _HANDLER_MISSING, f"module '{module_name}' has no '{function_name}'"
    if not callable(handler):
        return None, _HANDLER_INVALID, f"'{module_name}:{function_name}' is a {type(handler).__name__}"
    if inspect.iscoroutinefunction(handler):
        return None, _HANDLER_INVALID, f"'{module_name}:{function_name}' is a coroutine function"
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError as error:
        return None, _HANDLER_INVALID, f"'{module_name}:{function_name}' cannot take (record, ctx): {error}"
    except ValueError:
        pass  # Some builtins do not tell.
    return handler, 0, ""


def _offer_millrace() -> None:
    """Lets functions `import millrace` where it is not installed."""
    if importlib.util.find_spec("millrace") is None:
        package = types.ModuleType("millrace", "What a function sees.")
        for name in OFFERED:
            setattr(package, name, globals()[name])
        package.__dict__["__all__"] = list(OFFERED)
        package.__path__ = []
        package.__dict__["__getattr__"] = _not_offered
        sys.modules["millrace"] = package


def _not_offered(name: str) -> object:
    """What the package has elsewhere and functions do without."""
    if importing is not None and name in ("open", "create"):
        raise error_of(f"MR{_IMPORT_USES_NAMESPACE}", f"millrace.{name}() was called while module '{importing}' was imported")
    raise AttributeError(f"functions have no millrace.{name}, unless the package is installed for their interpreter")


def main(arguments: list[str]) -> None:
    """The zygote: loads the handler and forks a worker per request of the host."""
    control = socket.socket(fileno=os.dup(_CHANNEL))
    null = os.open(os.devnull, os.O_RDWR)
    # Keeps the number from being given to anything else: it is the workers' channel.
    os.dup2(null, _CHANNEL, inheritable=False)
    handler, code, message = _load(*arguments)
    control.send(struct.pack("<I", code) + message.encode(errors="backslashreplace")[:16000])
    if handler is None:
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(null, 1)
    os.dup2(null, 2)
    # Workers share these objects' pages with us; collecting them would touch and so copy every one.
    gc.collect()
    gc.freeze()
    zygote = os.getpid()
    while True:
        request, fds, _, _ = socket.recv_fds(control, _REQUEST_BYTES_MAX, 2)
        if not request:
            os._exit(0)
        if request[:1] == b"R":
            control.send(struct.pack("<i", _reap(*struct.unpack("<i", request[1:]))))
            continue
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                _become_worker(zygote, fds[0], fds[1], request[1:], handler)
            except BaseException:
                os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
        control.send(struct.pack("<i", pid))


def _reap(pid: int) -> int:
    """How a worker, which the host has killed, ended; -1 if that is not known."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return -1
