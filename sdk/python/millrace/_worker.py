"""Runs a Python function for a Millrace host. Python 3.9 or later, nothing installed.

The host starts this file once per deployed function, as its *zygote*: it imports the handler's module and then forks
a worker whenever the host asks for one. A worker speaks spec/protocol/worker.md on descriptor 3.
"""

import collections
import gc
import importlib
import importlib.util
import inspect
import io
import json
import os
import socket
import struct
import sys
import threading
import traceback
import types

_CHANNEL = 3
_WINDOW_BYTES = 256 << 10
# Small, since `os.read` allocates it anew each time, and beyond 128 KiB that is a system call.
_RECEIVE_BYTES = 16 << 10
_PROTOCOL_VERSION = 1

# length, kind, zero, name length, number
_HEAD = struct.Struct("<IBBHQ")
# seqno, run id (low, high), attempt, zero
_RUN_FIXED = struct.Struct("<QQQII")
_RUN, _ANSWER = 1, 2
_HELLO, _REFUSE, _APPEND, _DONE, _GET, _LATEST, _NOW, _RANDOM, _OUTPUT = range(16, 25)

# Codes of spec/errors.toml.
_MEMORY_EXCEEDED = 3108
_RAISED = b"MR3110"
_OUT_OF_MEMORY = b"MR3108"
_IMPORT_FAILED = 3115
_HANDLER_MISSING = 3116
_HANDLER_INVALID = 3117
_PYTHON_UNUSABLE = 3118

_NAME_BYTES_MAX = 255
_RECORD_BYTES_MAX = 16 << 20
_MESSAGE_CHARACTERS_MAX = 6000


class Error(Exception):
    """What the namespace refused: `code` is a stable code such as "MR2105"."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Record:
    """A record of a log: `log`, `seqno` and its bytes, `data`."""

    __slots__ = ("log", "seqno", "data")

    def __init__(self, log: str, seqno: int, data: bytes) -> None:
        self.log = log
        self.seqno = seqno
        self.data = data

    def text(self) -> str:
        """The record as UTF-8 text."""
        return self.data.decode()

    def json(self):
        """The record as JSON."""
        return json.loads(self.data)

    def __repr__(self) -> str:
        return f"Record({self.log!r}, {self.seqno}, {self.data[:40]!r}{'...' if len(self.data) > 40 else ''})"


class Context:
    """What a function may ask of its namespace while it runs."""

    __slots__ = ("_channel", "_id", "attempt")

    def __init__(self, channel: "_Channel", run_id: int, attempt: int) -> None:
        self._channel = channel
        self._id = run_id
        self.attempt = attempt

    @property
    def run(self) -> str:
        """The run's id; what it appends has it as its cause."""
        if not self._id:
            return "-"
        return f"{self._id >> 80:012x}-{self._id >> 56 & 0xFFFFFF:x}-{self._id & (1 << 56) - 1:x}"

    cause = run

    def append(self, log: str, data) -> None:
        """Appends bytes, text, or anything that JSON can express; visible when the run is done, or never."""
        if isinstance(data, str):
            data = data.encode()
        elif isinstance(data, (bytearray, memoryview)):
            data = bytes(data)
        elif not isinstance(data, bytes):
            data = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        if len(data) > _RECORD_BYTES_MAX:
            raise Error("MR1004", f"a record of {len(data)} bytes; {_RECORD_BYTES_MAX} is the most")
        name = _log_name(log)
        self._open().stage(_HEAD.pack(len(name) + len(data), _APPEND, 0, len(name), 0) + name + data)

    def get(self, log: str, seqno: int) -> Record:
        """A record of a log, as of the beginning of the run."""
        if not 0 <= seqno < 1 << 64:
            raise Error("MR1003", f"{seqno} is not a sequence number")
        name = _log_name(log)
        return Record(log, seqno, self._open().ask(_HEAD.pack(len(name), _GET, 0, len(name), seqno) + name))

    def latest(self, log: str) -> int:
        """The seqno of the newest record of a log as of the beginning of the run, 0 if it has none."""
        name = _log_name(log)
        answer = self._open().ask(_HEAD.pack(len(name), _LATEST, 0, len(name), 0) + name)
        return int.from_bytes(answer, "little")

    def now(self) -> float:
        """Seconds since 1970."""
        return int.from_bytes(self._open().ask(_HEAD.pack(0, _NOW, 0, 0, 0)), "little") / 1e9

    def random(self, n: int) -> bytes:
        """Random bytes, at most 65536."""
        return self._open().ask(_HEAD.pack(0, _RANDOM, 0, 0, n))

    def _open(self) -> "_Channel":
        channel = self._channel
        if channel is None:
            raise RuntimeError("the run is over; its context cannot be used any more")
        if channel.forked:
            raise RuntimeError("a forked child cannot use the context of the run")
        return channel


def _log_name(log: str) -> bytes:
    name = log.encode()
    if len(name) > _NAME_BYTES_MAX:
        raise Error("MR1001", f"a log name of {len(name)} bytes; {_NAME_BYTES_MAX} is the most")
    return name


class _Channel:
    """Frames on a descriptor. RUN frames that arrive while an answer is awaited wait in `runs`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # In a child that the function forked, which has no business here.
        self.forked = False
        self._staged = []
        self._received = b""
        self._at = 0
        self._runs = collections.deque()
        # Functions may have threads. Lock order: _asking, _writing.
        self._asking = threading.Lock()
        self._writing = threading.Lock()

    def stage(self, frame: bytes) -> None:
        with self._writing:
            self._staged.append(frame)

    def flush(self, last: bytes = b"") -> None:
        """Writes what was staged and then `last`."""
        with self._writing:
            staged = self._staged
            if staged:
                staged.append(last)
                last = b"".join(staged)
                staged.clear()
            written = os.write(self.fd, last)
            while written < len(last):
                written += os.write(self.fd, memoryview(last)[written:])

    def ask(self, frame: bytes) -> bytes:
        with self._asking:
            self.flush(frame)
            while True:
                kind, number, body = self._frame()
                if kind == _ANSWER:
                    break
                self._runs.append((number, body))
        if number:
            raise Error(f"MR{number}", body[2:].decode(errors="replace"))
        return body[2:]

    def next_run(self):
        if self._runs:
            return self._runs.popleft()
        _, number, body = self._frame()
        return number, body

    def _frame(self):
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


class _Printed(io.RawIOBase):
    """Standard output and error: what is printed travels in the channel, so that it is the right run's."""

    def __init__(self, channel: _Channel, fd: int) -> None:
        self._channel = channel
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        data = bytes(data)
        if self._channel.forked:
            return os.write(self._fd, data)
        self._channel.flush(_HEAD.pack(len(data), _OUTPUT, 0, 0, 0) + data)
        return len(data)


def _stream(channel: _Channel, fd: int) -> io.TextIOWrapper:
    buffered = io.BufferedWriter(_Printed(channel, fd))
    return io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _explain(error: BaseException) -> str:
    """What was raised, and where; without our own frames."""
    try:
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        if isinstance(error, SystemExit):
            summary = f"the function called sys.exit({error.code!r})"
        where = traceback.TracebackException(type(error), error, error.__traceback__)
        frames = [f for f in where.stack if f.filename != __file__ and not f.filename.startswith("<frozen importlib")]
        where.stack = traceback.StackSummary.from_list(frames)
        text = "".join(where.format())
        if len(text) > _MESSAGE_CHARACTERS_MAX:
            half = _MESSAGE_CHARACTERS_MAX // 2
            text = f"{text[:half]}\n...\n{text[-half:]}"
        return f"{summary[:1000]}\n{text}"
    except BaseException:  # A hostile __str__, or no memory left to format with.
        return type(error).__name__


def _work(channel: _Channel, handler) -> None:
    """Runs the handler for every RUN frame. Each run's frames are written before the next run begins."""
    stdout, stderr = sys.stdout, sys.stderr
    fixed, head, next_run, flush = _RUN_FIXED.unpack_from, _HEAD.pack, channel.next_run, channel.flush
    channel.flush(head(4, _HELLO, 0, 0, _PROTOCOL_VERSION) + _WINDOW_BYTES.to_bytes(4, "little"))
    while True:
        serial, body = next_run()
        seqno, run_low, run_high, attempt, _ = fixed(body, 2)
        log_end = 34 + (body[0] | body[1] << 8)
        context = Context(channel, run_high << 64 | run_low, attempt)
        try:
            handler(Record(body[34:log_end].decode(), seqno, body[log_end:]), context)
            done = head(0, _DONE, 0, 0, serial)
        except BaseException as error:
            code = _OUT_OF_MEMORY if isinstance(error, MemoryError) else _RAISED
            message = _explain(error).encode(errors="backslashreplace")
            done = head(len(code) + len(message), _DONE, 0, len(code), serial) + code + message
        if channel.forked:
            os.write(2, b"[a child that the function forked returned from the function, and was ended]\n")
            os._exit(1)
        context._channel = None
        try:
            stdout.flush()
            stderr.flush()
        except ValueError:
            # The function closed them; what it prints next raises in its own code.
            pass
        flush(done)


def _die_with_parent(parent: int) -> None:
    """Asks the kernel for SIGKILL when the zygote dies. Without ctypes the end of the channel must do."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass
    if os.getppid() != parent:
        os._exit(1)


def _become_worker(zygote: int, channel_fd: int, printed_fd: int, handler) -> None:
    os.setpgid(0, 0)
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

    os.register_at_fork(after_in_child=in_forked_child)
    _work(channel, handler)


def _load(directory: str, module_name: str, function_name: str):
    """The handler, or the number of a code and what was wrong."""
    if sys.version_info < (3, 9):
        return None, _PYTHON_UNUSABLE, f"{sys.executable} is Python {sys.version.split()[0]}; 3.9 is needed"
    sys.path.insert(0, directory)
    _offer_millrace()
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        code = _MEMORY_EXCEEDED if isinstance(error, MemoryError) else _IMPORT_FAILED
        return None, code, f"cannot import '{module_name}': {_explain(error)}"
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
        package = types.ModuleType("millrace", "The types that a function sees.")
        package.Context, package.Error, package.Record = Context, Error, Record
        package.__all__ = ["Context", "Error", "Record"]
        package.__path__ = []
        sys.modules["millrace"] = package


def main(arguments) -> None:
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
        request, fds, _, _ = socket.recv_fds(control, 16, 2)
        if not request:
            os._exit(0)
        if len(request) == 4:
            control.send(struct.pack("<i", _reap(*struct.unpack("<i", request))))
            continue
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                _become_worker(zygote, *fds, handler)
            except BaseException:
                os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
        control.send(struct.pack("<i", pid))


def _reap(pid: int) -> int:
    """How a worker, which the host has killed, ended; -1 if nobody knows."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return -1
