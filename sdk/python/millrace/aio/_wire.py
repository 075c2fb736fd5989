"""The wire protocol for asyncio, many requests at a time over each connection: over hosts' Unix sockets, and to other addresses."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import itertools
import struct
from collections.abc import Sequence
from typing import Any, Optional

from millrace._errors import LOST
from millrace.aio._messages import CALL, CHALLENGE, FAILURE, HELLO, INVOKE_FUNCTION, PING, PONG, WELCOME
from millrace._records import _native
from millrace._worker import Error
from millrace.objects import _spaces, _values

_VERSION = 2
#: The longest frame that a host sends, unless WELCOME says less.
_FRAME_BYTES_MAX = 16_842_752
#: How long a host that cannot be reached is tried again, and how often.
_PATIENCE_S, _PAUSE_S = 15.0, 0.1
#: How long a connection has to last so that its loss is a new one, and how often that counts for one request.
_LASTED_S, _LOSSES_MAX = 1.0, 10
#: How many requests may wait on one connection until another one is opened: over a Unix socket, and through the native module. A host reads no
#: further from a connection with 4096 of them, and the native module sends 1024.
_SHARE, _TUNNEL_SHARE = 2048, 512


#: The host is there, and hears of no majority of its group.
_NO_MAJORITY = "MR7208"


class Lost(ConnectionError):
    """The connection ended before the answer came."""


class _Line(abc.ABC):
    """Requests to one of several hosts, and to the next one when it is lost."""

    #: The errors after which a request is sent again: the host cannot be reached, or was lost.
    _lost: frozenset[str] = frozenset(("MR6121", "MR6123"))
    #: Those of them after which the host may have the request.
    _maybe_sent: tuple[str, ...] = ()

    def __init__(self, places: Sequence[str]) -> None:
        self._places, self._at = tuple(places), 0
        self._closed = False
        self._forks = _spaces.forks()

    def _check_process(self) -> None:
        _spaces.refuse_inherited(self._forks, f"the connection to '{self._place}'")

    @property
    def _place(self) -> str:
        """The address of the host."""
        return self._places[self._at % len(self._places)]

    def _turn(self, at: int) -> None:
        """Switches to the next host, unless another request has already switched since a request was sent to the host `at`."""
        if self._at == at and len(self._places) > 1:
            self._at += 1
            self._turned()

    def _turned(self) -> None:
        """Called after a switch to another host."""

    @abc.abstractmethod
    async def ask(self, kind: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Sends a request and waits for its answer."""

    async def insist(self, kind: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The same for a request that takes effect once, however often it is sent: it is sent again after a lost connection."""
        loop = asyncio.get_running_loop()
        #: From the first error on, however long the request waited before, and again if a connection was lost that had lasted.
        deadline: Optional[float] = None
        losses, maybe_sent = 0, False
        while True:
            at, begun = self._at, loop.time()
            try:
                return await self.ask(kind, message)
            except (Lost, Error) as error:
                lasted = loop.time() - begun > _LASTED_S and getattr(error, "code", "MR6123") == "MR6123" and losses < _LOSSES_MAX
                losses += lasted
                if deadline is None or lasted:
                    deadline = loop.time() + _PATIENCE_S
                if not isinstance(error, Error):
                    maybe_sent = True
                    if self._closed or loop.time() > deadline:
                        raise _native.error("MR6123", f"'{self._place}'") from None
                    self._turn(at)
                    continue
                if error.code == "MR7110" and kind == CALL and maybe_sent:
                    detail = "the connection was lost before the answer, and the session ended before it was replaced"
                    raise _native.error("MR7111", detail) from error
                maybe_sent = maybe_sent or error.code in self._maybe_sent
                again = error.code in self._lost and not self._closed and loop.time() < deadline
                if error.code == _NO_MAJORITY and len(self._places) > 1 and loop.time() < deadline:
                    # Another host may hear of the majority.
                    self._turn(at)
                elif error.retry_after is None and not again:
                    raise
                await asyncio.sleep(max(error.retry_after or 0, _PAUSE_S))


def _frame(kind: int, number: int, clock: int, message: dict[str, Any]) -> bytes:
    body = _values.encode([kind, number, clock, None, message])
    if len(body) > _FRAME_BYTES_MAX:
        raise _native.error("MR6002", f"a request of {len(body)} bytes; {_FRAME_BYTES_MAX} is the most")
    return struct.pack("<I", len(body)) + body


def invocation(message: dict[str, Any]) -> bytes:
    """The frame that runs a function."""
    return _frame(INVOKE_FUNCTION, 1, 0, message)


def invoked(frame: bytes) -> tuple[str, str, bytes, str, str]:
    """The answer to it: the run, its state, its result, and the code and description of its error."""
    kind, _, _, _, message = _values.decode(frame[4:])[:5]
    _, found = _answered(kind, message)
    if "run" not in found:
        raise _native.error("MR6004", "the host runs a version of Millrace that does not report results")
    id = int.from_bytes(found["run"], "little")
    run = f"{id >> 80:012x}-{id >> 56 & 0xFFFFFF:x}-{id & (1 << 56) - 1:x}"
    return run, found["state"], found.get("result", b""), found.get("code", ""), found.get("error", "")


def _answered(kind: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if kind == FAILURE:
        error = _native.error(message["code"], message["detail"])
        if "retry_after_ms" in message:
            error.retry_after = message["retry_after_ms"] / 1e3
        raise error
    return kind, message


class Tunnel(_Line):
    """Connections through the native module, which has the encryption and the capabilities: to any address, and with no thread for a call."""

    _lost = LOST
    _maybe_sent = ("MR6123", "MR6008", "MR6053")

    def __init__(self, addresses: Sequence[str], ca: Optional[str]) -> None:
        super().__init__(addresses)
        self._ca = ca
        #: For each host: its connections, each with the number of its requests.
        self._pipelines: list[dict[Any, int]] = [{} for _ in addresses]
        self._waiting: set[asyncio.Future[bytes]] = set()

    async def connect(self) -> None:
        """Opens one connection to each host. Requests connect it."""
        for at in range(len(self._places)):
            self._free(at)

    def _free(self, at: int) -> Any:
        """A connection to this host that has room for another request."""
        pipelines = self._pipelines[at]
        for pipeline, requests in pipelines.items():
            if requests < _TUNNEL_SHARE:
                return pipeline
        pipeline = _native.Pipeline(self._places[at], self._ca)
        pipelines[pipeline] = 0
        # The event loop hears of its answers.
        asyncio.get_running_loop().add_reader(pipeline.fileno(), pipeline.drain)
        return pipeline

    async def ask(self, kind: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Sends a request and waits for its answer."""
        self._check_process()
        if self._closed:
            raise _native.error("MR6106", f"the connection to '{self._place}' is closed")
        at, future = self._at, asyncio.get_running_loop().create_future()
        pipelines = self._pipelines[at % len(self._pipelines)]
        pipeline = self._free(at % len(self._pipelines))
        request = pipeline.ask(future, _frame(kind, 1, 0, message), message.get("wait_ms", 0))
        pipelines[pipeline] += 1
        self._waiting.add(future)
        try:
            frame = await future
        except asyncio.CancelledError:
            request.cancel()
            raise
        except Error as error:
            if error.code in self._lost:
                self._turn(at)
            raise
        finally:
            pipelines[pipeline] -= 1
            self._waiting.discard(future)
        answer, _, _, _, found = _values.decode(frame[4:])[:5]
        return _answered(answer, found)

    async def close(self) -> None:
        """Closes the connections; requests that wait raise."""
        self._closed = True
        loop = asyncio.get_running_loop()
        # Requests that end now still have what is theirs.
        pipelines, self._pipelines = self._pipelines, [{} for _ in self._places]
        for pipeline in [pipeline for of_host in pipelines for pipeline in of_host]:
            loop.remove_reader(pipeline.fileno())
        for future in self._waiting:
            if not future.done():
                future.set_exception(_native.error("MR6106", f"the connection to '{self._place}' is closed"))


class Wire(_Line):
    """Connections to one host; when they are lost, to it again or to the next of several hosts. Requests that were not answered raise `Lost`."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        #: The connections, and how many requests wait on each.
        self._writers: dict[asyncio.StreamWriter, int] = {}
        self._readings: set[asyncio.Task[None]] = set()
        self._connecting = asyncio.Lock()
        self._share = _SHARE
        self._numbers = itertools.count(1)
        #: By number of the request: the connection that it went over, and where its answers come.
        self._answers: dict[int, tuple[asyncio.StreamWriter, asyncio.Queue[Any]]] = {}
        self._clock = 0

    @property
    def _path(self) -> str:
        """The path of the socket."""
        return self._place

    def _turned(self) -> None:
        writers, self._writers = self._writers, {}
        for writer in writers:
            writer.close()

    def _free(self) -> Optional[asyncio.StreamWriter]:
        """A connection that has room for another request."""
        for writer, requests in self._writers.items():
            if requests < self._share:
                return writer
        return None

    async def connect(self) -> asyncio.StreamWriter:
        """Connects unless a connection has room: to the first host that answers, beginning with the one that was used last."""
        async with self._connecting:
            if self._closed:
                raise _native.error("MR6106", f"the connection to 'unix:{self._path}' is closed")
            writer = self._free()
            if writer is not None:
                return writer
            for left in range(len(self._places) - 1, -1, -1):
                try:
                    return await self._connect()
                except Error as error:
                    if left == 0 or error.code not in self._lost:
                        raise
                    self._at += 1
            raise AssertionError("there is at least one host")

    async def _connect(self) -> asyncio.StreamWriter:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=1 << 20)
        except OSError as error:
            raise _native.error("MR6121", f"'unix:{self._path}': {error}") from None
        try:
            writer.write(b"MR/2")
            hello = {"oldest": _VERSION, "newest": _VERSION, "namespace": "", "client": "millrace.aio"}
            kind = CHALLENGE
            # A caller that is not the owner is challenged for capabilities, which this client does not have.
            while kind == CHALLENGE:
                self._send(writer, HELLO, 1, hello)
                kind, _, answer = await self._receive(reader)
            if kind != WELCOME:
                raise _native.error(answer.get("code", "MR6004"), answer.get("detail", ""))
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise _native.error("MR6123", f"'unix:{self._path}': {error}") from None
        except BaseException:
            writer.close()
            raise
        self._share = max(1, min(_SHARE, answer.get("requests_max", _SHARE) // 2))
        self._writers[writer] = 0
        reading = asyncio.create_task(self._read(reader, writer))
        self._readings.add(reading)
        reading.add_done_callback(self._readings.discard)
        return writer

    def _send(self, writer: asyncio.StreamWriter, kind: int, number: int, message: dict[str, Any]) -> None:
        writer.write(_frame(kind, number, self._clock, message))

    async def _receive(self, reader: asyncio.StreamReader) -> tuple[int, int, dict[str, Any]]:
        length = struct.unpack("<I", await reader.readexactly(4))[0]
        if length > _FRAME_BYTES_MAX:
            raise _native.error("MR6002", f"the host sends a frame of {length} bytes")
        kind, number, clock, _, message = _values.decode(await reader.readexactly(length))[:5]
        self._clock = max(self._clock, clock)
        return kind, number, message

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                kind, number, message = await self._receive(reader)
                if kind == PING:
                    self._send(writer, PONG, number, {})
                elif number == 0:
                    break
                elif number in self._answers:
                    self._answers[number][1].put_nowait((kind, message))
        except Exception:
            # The connection has ended, or what came cannot be read, and then nothing behind it can be.
            pass
        finally:
            self._writers.pop(writer, None)
            writer.close()
            for over, waiting in self._answers.values():
                if over is writer:
                    waiting.put_nowait(None)

    async def ask(self, kind: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Sends a request and waits for its answer."""
        self._check_process()
        writer = self._free() or await self.connect()
        number = next(self._numbers)
        answers: asyncio.Queue[Any] = asyncio.Queue()
        self._answers[number] = (writer, answers)
        self._writers[writer] += 1
        try:
            self._send(writer, kind, number, message)
            await writer.drain()
            return self._answer(await answers.get())
        except Error:
            # Some of them are connection errors too.
            raise
        except ConnectionError:
            raise Lost from None
        finally:
            del self._answers[number]
            if writer in self._writers:
                self._writers[writer] -= 1

    @staticmethod
    def _answer(answer: Any) -> tuple[int, dict[str, Any]]:
        if answer is None:
            raise Lost
        return _answered(*answer)

    async def close(self) -> None:
        """Closes the connections; requests that wait raise."""
        self._closed = True
        readings = list(self._readings)
        for writer in self._writers:
            writer.close()
        for reading in readings:
            with contextlib.suppress(Exception):
                await reading
