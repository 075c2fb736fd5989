"""Runs a Python function for a Millrace host. Needs Python 3.9 or later, and no packages.

The host starts this file, behind those of `_errors`, once per deployed function, as its *zygote*: it imports the handler's module and then forks
a worker whenever the host requests one. A worker uses the protocol of spec/protocol/worker.md on descriptor 3.
"""

from __future__ import annotations

import abc
import collections
import gc
import importlib.util
import inspect
import io
import json
import os
import select
import socket
import struct
import sys
import threading
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
from millrace._errors._explain import explain, plain, tell_dropped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Optional, TypeVar, Union

    Handler = Callable[["Record", "Context"], object]
    H = TypeVar("H", bound=Handler)

_CHANNEL = 3
_WINDOW_BYTES = 256 << 10
# Small, because `os.read` allocates it each time, and beyond 128 KiB that is a system call.
_RECEIVE_BYTES = 16 << 10
# While answers wait to be received, of up to 16 MiB each.
_RECEIVE_MORE_BYTES = 1 << 20
# How often a thread that writes looks whether another one still receives.
_AGAIN_MS = 20
_PROTOCOL_VERSION = 3

# One byte, then a path or a pid.
_REQUEST_BYTES_MAX = 8 << 10
# length, kind, zero, name length, number
_HEAD = struct.Struct("<IBBHQ")
# seqno, run id (low, high), attempt, flags
_RUN_FIXED = struct.Struct("<QQQII")
_STREAMED = 1
_RUN, _ANSWER, _RETURN, _REENTER = 1, 2, 3, 4
_HELLO, _REFUSE, _APPEND, _DONE, _GET, _LATEST, _NOW, _RANDOM, _OUTPUT, _CALL, _REENTERED = range(16, 27)

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
_OVER = "the run is over; its context can no longer be used"

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

    def __init__(self, channel: _Channel, run_id: int, attempt: int, streamed: bool) -> None:
        self._channel: Optional[_Channel] = channel
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
        name = _log_name(log)
        frame = _HEAD.pack(len(name) + len(payload), _APPEND, 0, len(name), 0) + name + payload
        if self._streamed:
            return int.from_bytes(self._open().ask(self, frame), "little")
        self._open().stage(self, frame)
        return None

    def get(self, log: str, seqno: int) -> Record:
        """A record of a log, as of the beginning of the run; in a streamed function, as it is now."""
        if not 0 <= seqno < 1 << 64:
            raise error_of("MR1003", f"{seqno} is not a sequence number")
        name = _log_name(log)
        return Record(log, seqno, self._open().ask(self, _HEAD.pack(len(name), _GET, 0, len(name), seqno) + name))

    def latest(self, log: str) -> int:
        """The seqno of the newest record of a log, 0 if it has none: as of the beginning of the run, or streamed now."""
        name = _log_name(log)
        answer = self._open().ask(self, _HEAD.pack(len(name), _LATEST, 0, len(name), 0) + name)
        return int.from_bytes(answer, "little")

    def now(self) -> float:
        """Seconds since 1970: when the attempt began, or now in a streamed run."""
        return int.from_bytes(self._open().ask(self, _HEAD.pack(0, _NOW, 0, 0, 0)), "little") / 1e9

    def random(self, n: int) -> bytes:
        """Random bytes, at most 65536."""
        return self._open().ask(self, _HEAD.pack(0, _RANDOM, 0, 0, n))

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

    def _call_object(self, call: bytes) -> bytes:
        """Calls a shared object; the answer may take a long time."""
        return self._open().call(self, call)

    def _call_object_later(self, call: bytes) -> Any:
        """The same within an event loop: the future of the answer. Any number of calls may wait."""
        return self._open().call_later(self, call)

    def _open(self) -> _Channel:
        channel = self._channel
        if channel is None:
            raise RuntimeError(_OVER)
        if channel.forked:
            raise RuntimeError("a forked child cannot use the context of the run")
        return channel


def _log_name(log: str) -> bytes:
    name = log.encode()
    if len(name) > _NAME_BYTES_MAX:
        raise error_of("MR1001", f"a log name of {len(name)} bytes; the limit is {_NAME_BYTES_MAX}")
    return name


class _Channel:
    """Frames on a descriptor. One thread at a time receives, for all threads that wait for something."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # In a child that the function forked, which has no business here.
        self.forked = False
        self._staged: list[bytes] = []
        self._received = b""
        self._at = 0
        self._runs: collections.deque[tuple[int, bytes]] = collections.deque()
        #: The answer of the request that is pending: the number of an error code, and the body.
        self._answer: Optional[tuple[int, bytes]] = None
        #: By number: what takes the answers of calls of objects, which may come at any time.
        self._calls: dict[int, Callable[[bytes], object]] = {}
        self._last_call = 0
        #: Calls that come back to the object whose method runs here, and what runs them.
        self._reentering: collections.deque[tuple[int, bytes]] = collections.deque()
        self.reenter: Optional[Callable[[int, bytes], object]] = None
        #: The event loop of that method, and the thread that runs it.
        self.loop: Any = None
        self._loop_thread = 0
        self._socket: Optional[socket.socket] = None
        # Functions may have threads. Lock order: _asking, _writing, _receiving.
        self._asking = threading.Lock()
        self._writing = threading.Lock()
        self._receiving = threading.Condition(threading.Lock())
        self._is_receiving = False

    def is_in_use(self, stack: Any) -> bool:
        """Whether this stack writes, receives or waits: an exception would leave a frame incomplete, or an answer untaken."""
        while stack is not None and stack.f_locals.get("self") is not self:
            stack = stack.f_back
        # A method that came back may be interrupted.
        return stack is not None and stack.f_code.co_name != "run_reentering"

    def stage(self, run: Context, frame: bytes) -> None:
        with self._writing:
            if run._channel is None:
                raise RuntimeError(_OVER)
            self._staged.append(frame)

    def flush(self, last: bytes = b"") -> None:
        """Writes the staged frames, and then `last`."""
        with self._writing:
            self._flush(last, 0)

    def _flush(self, last: bytes, calls: int) -> None:
        """The same under the lock; `last` begins so many of the calls that wait for an answer."""
        staged = self._staged
        if staged:
            staged.append(last)
            last = b"".join(staged)
            staged.clear()
        if len(self._calls) > calls:
            self._write(last)
            return
        written = os.write(self.fd, last)
        while written < len(last):
            written += os.write(self.fd, memoryview(last)[written:])

    def _write(self, frames: bytes) -> None:
        """Writes while answers may come: the host reads nothing more while too many of them are not received."""
        if self._socket is None:
            self._socket = socket.socket(fileno=os.dup(self.fd))
        left = memoryview(frames)
        receives = self._begin_receiving()
        try:
            while left:
                try:
                    left = left[self._socket.send(left, socket.MSG_DONTWAIT) :]
                    continue
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self.fd, select.POLLOUT | (select.POLLIN if receives else 0))
                ready = poll.poll(None if receives else _AGAIN_MS)
                # The thread that received may have its answer, and then no other one takes what the host waits to send.
                receives = receives or self._begin_receiving()
                if receives and ready and ready[0][1] & select.POLLIN:
                    more = os.read(self.fd, _RECEIVE_MORE_BYTES)
                    if not more:
                        os._exit(0)
                    self._received, self._at = self._received[self._at :] + more, 0
        finally:
            if receives:
                self._take_received()
                self._end_receiving()

    def _begin_receiving(self) -> bool:
        """Makes this thread the one that receives, unless there is one."""
        with self._receiving:
            begins, self._is_receiving = not self._is_receiving, True
            return begins

    def _end_receiving(self) -> None:
        with self._receiving:
            self._is_receiving = False
            self._receiving.notify_all()

    def _receive(self, has_come: Callable[[], object]) -> None:
        """Receives frames, or waits for the thread that does, until what this thread waits for has come."""
        with self._receiving:
            while self._is_receiving:
                if has_come():
                    return
                self._receiving.wait()
            self._is_receiving = True
        try:
            while not has_come():
                self._take(*self._frame())
                # Under the lock: a thread may have looked for its answer, and be about to wait.
                with self._receiving:
                    self._receiving.notify_all()
            # No event loop hears of what has been received already.
            self._take_received()
        finally:
            self._end_receiving()

    def ask(self, run: Context, frame: bytes) -> bytes:
        with self._asking:
            # Under the lock for which `close` looks: a thread that outlives its run must not speak in the next one.
            if run._channel is None:
                raise RuntimeError(_OVER)
            self._answer = None
            self.flush(frame)
            self._receive(lambda: self._answer)
            assert self._answer is not None
            number, body = self._answer
        if number:
            raise error_of(f"MR{number}", body[2:].decode(errors="replace"))
        return body[2:]

    def call_later(self, run: Context, call: bytes) -> Any:
        """Sends a call whose answer is taken by `answers`, which an event loop calls when there is something to read."""
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._send_call(run, call, lambda body: loop.call_soon_threadsafe(_settle, future, body))
        return future

    def call(self, run: Context, call: bytes) -> bytes:
        """Calls an object. While it waits, it runs the calls that come back to the object whose method makes this one."""
        answers: list[bytes] = []
        self._send_call(run, call, answers.append)
        while not answers:
            self._receive(lambda: answers or run._channel is None or self._may_reenter())
            if not answers:
                if run._channel is None:
                    raise RuntimeError(_OVER)
                # They make calls, too.
                self.run_reentering()
        return _outcome(answers[0])

    def _send_call(self, run: Context, call: bytes, taken: Callable[[bytes], object]) -> None:
        with self._writing:
            if run._channel is None:
                raise RuntimeError(_OVER)
            self._last_call += 1
            number = self._last_call
            # Another thread may take the answer as soon as the call is sent.
            self._calls[number] = taken
            self._flush(_HEAD.pack(len(call), _CALL, 0, 0, number) + call, 1)

    def _may_reenter(self) -> bool:
        """Whether this thread runs calls that have come back: if there is an event loop, only the thread of it does."""
        return bool(self._reentering and self.reenter and (self.loop is None or self._loop_thread == threading.get_ident()))

    def use_loop(self, loop: Any) -> None:
        """Sets the event loop of the method that this thread runs, or None."""
        self._loop_thread = threading.get_ident()
        self.loop = loop

    def run_reentering(self) -> None:
        """Runs the calls that have come back to the object whose method this worker runs."""
        while self._reentering:
            reenter = self.reenter
            if reenter is None:
                return
            try:
                came = self._reentering.popleft()
            except IndexError:  # Another thread runs it.
                return
            reenter(*came)

    def reentered(self, number: int, answer: bytes) -> None:
        """Sends the answer of such a call."""
        self.flush(_HEAD.pack(len(answer), _REENTERED, 0, 0, number) + answer)

    def answers(self) -> None:
        """Takes answers: an event loop has found that there is something to read."""
        # A thread that waits for an answer of its own takes all others, too.
        if self._begin_receiving():
            try:
                # A callback that ran before this one may have received it.
                if select.select([self.fd], [], [], 0)[0]:
                    self._take(*self._frame())
                self._take_received()
            finally:
                self._end_receiving()

    def _take_received(self) -> None:
        while self._is_whole():
            self._take(*self._frame())

    def _take(self, kind: int, number: int, body: bytes) -> None:
        if kind == _ANSWER:
            self._answer = number, body
        elif kind == _RETURN:
            taken = self._calls.pop(number, None)
            if taken is not None:
                taken(body)
        elif kind == _REENTER:
            self._reentering.append((number, body[2:]))
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self.run_reentering)
        else:
            self._runs.append((number, body))

    def close(self, run: Context) -> None:
        """Ends the use of the run's context: a thread that has sent a request gets its answer first, and one whose call waits is refused."""
        with self._writing:
            run._channel = None
        if self._asking.locked():
            with self._asking:
                pass
        # Answers may come until the host knows of the run's end, which it does not hear while it cannot send them.
        with self._receiving:
            self._receiving.notify_all()

    def next_run(self) -> tuple[int, bytes]:
        if not self._runs:
            self._receive(lambda: self._runs)
        # What came too late for the run before.
        self._reentering.clear()
        self._calls.clear()
        return self._runs.popleft()

    def _is_whole(self) -> bool:
        """Whether a whole frame has been received."""
        available = len(self._received) - self._at
        return available >= 16 and available >= 16 + int.from_bytes(self._received[self._at : self._at + 4], "little")

    def _frame(self) -> tuple[int, int, bytes]:
        """The next frame: its kind, its number, and its name length (2 bytes) and body."""
        received, at = self._received, self._at
        while True:
            available = len(received) - at
            if available >= 16:
                length, kind, _, _, number = _HEAD.unpack_from(received, at)
                end = at + 16 + length
                if end <= len(received):
                    self._received, self._at = received, end
                    return kind, number, received[at + 6 : at + 8] + received[at + 16 : end]
                parts, missing = [received[at:]], end - len(received)
            else:
                parts, missing = [received[at:]], 1
            while missing > 0:
                more = os.read(self.fd, max(missing, _RECEIVE_BYTES))
                if not more:
                    # The host is gone, or done with this worker.
                    os._exit(0)
                parts.append(more)
                missing -= len(more)
            received, at = b"".join(parts), 0


def _settle(future: Any, body: bytes) -> None:
    """Sets the outcome of a call. One that was cancelled has none."""
    if future.done():
        return
    try:
        future.set_result(_outcome(body))
    except Error as error:
        future.set_exception(error)


def _outcome(body: bytes) -> bytes:
    """The answer of a call, or the error that it raises: the length of the code (2 bytes), the code, and the rest."""
    length = body[0] | body[1] << 8
    if length:
        raise error_of(body[2 : 2 + length].decode(), body[2 + length :].decode(errors="replace"))
    return body[2:]


class _Printed(io.RawIOBase):
    """Standard output and error: printed text goes through the channel, so that it is assigned to the right run."""

    def __init__(self, channel: _Channel, fd: int) -> None:
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
        self._channel.flush(_HEAD.pack(len(data), _OUTPUT, 0, 0, 0) + data)
        return len(data)


def _stream(channel: _Channel, fd: int) -> io.TextIOWrapper:
    buffered = io.BufferedWriter(_Printed(channel, fd))
    return io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _work(channel: _Channel, handler: Handler) -> None:
    """Runs the handler for every RUN frame. Each run's frames are written before the next run begins."""
    stdout, stderr, is_told = sys.stdout, sys.stderr, False
    fixed, head = _RUN_FIXED.unpack_from, _HEAD.pack
    next_run, close, flush = channel.next_run, channel.close, channel.flush
    channel.flush(head(4, _HELLO, 0, 0, _PROTOCOL_VERSION) + _WINDOW_BYTES.to_bytes(4, "little"))
    while True:
        serial, body = next_run()
        seqno, run_low, run_high, attempt, flags = fixed(body, 2)
        log_end = 34 + (body[0] | body[1] << 8)
        context = Context(channel, run_high << 64 | run_low, attempt, flags & _STREAMED != 0)
        try:
            returned = handler(Record(body[34:log_end].decode(), seqno, body[log_end:]), context)
            is_told = is_told or returned is not None and tell_dropped(returned, stdout)
            done = head(0, _DONE, 0, 0, serial)
        except BaseException as error:
            code = _OUT_OF_MEMORY if isinstance(error, MemoryError) else _RAISED
            message = explain(error).encode(errors="backslashreplace")
            done = head(len(code) + len(message), _DONE, 0, len(code), serial) + code + message
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
    channel = _Channel(_CHANNEL)
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
