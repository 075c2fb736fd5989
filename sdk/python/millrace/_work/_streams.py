"""Works that are streams of bytes: several at once, each in a thread of its own. See spec/protocol/worker.md."""

from __future__ import annotations

import struct
import threading

from millrace._errors import Error, error_of
from millrace._errors._explain import explain
from millrace._work._channel import DONE, HEAD, HELLO, WORK, Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Optional

    Action = Callable[[str, bytes, "Stream"], Optional[bytes]]

CANCEL, DATA, CREDIT, END, RESET = 4, 40, 42, 43, 44
STREAM, _KINDS = 3, 4
_CANCELLED, _RAISED = "MR3140", "MR3110"
# What the host may send ahead, and what goes in one frame.
_WINDOW_BYTES = 512 << 10
_DATA_BYTES = 256 << 10


class Stream:
    """The bytes of a stream in both directions. Both raise an error if the stream is cancelled."""

    def __init__(self, channel: Channel, work: int) -> None:
        self._channel = channel
        self._work = work
        self._changed = threading.Condition()
        self._received = bytearray()
        # None while more may come; then the error that it ended with, or "".
        self._end: Optional[str] = None
        self._detail = ""
        self._credit = 0
        self._taken = _WINDOW_BYTES
        self.cancelled = False

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes, as soon as there are any; b"" at the end."""
        with self._changed:
            room = self._taken if self._taken >= _WINDOW_BYTES // 2 and self._end is None else 0
            self._taken -= room
        if room:
            # Without the lock, which the thread that receives needs.
            self._send(CREDIT, room)
        with self._changed:
            self._wait(lambda: self._received or self._end is not None)
            if not self._received and self._end:
                raise error_of(self._end, self._detail)
            data = bytes(self._received if size < 0 else self._received[:size])
            del self._received[: len(data)]
            self._taken += len(data)
            return data

    def write(self, data: bytes) -> None:
        """Sends bytes, as the other side takes them."""
        left = memoryview(data).cast("B")
        while left:
            with self._changed:
                self._wait(lambda: self._credit)
                part = left[: min(self._credit, _DATA_BYTES)]
                self._credit -= len(part)
            self._send(DATA, payload=bytes(part))
            left = left[len(part) :]

    def _wait(self, has_come: Callable[[], object]) -> None:
        while not self.cancelled and not has_come():
            self._changed.wait()
        if self.cancelled:
            raise error_of(_CANCELLED, "the stream was cancelled")

    def _send(self, kind: int, number: int = 0, name: bytes = b"", payload: bytes = b"") -> None:
        self._channel.flush(HEAD.pack(len(name) + len(payload), kind, 0, len(name), self._work, number) + name + payload)

    def _take(self, kind: int, number: int, name: str, payload: bytes) -> None:
        with self._changed:
            if kind == DATA:
                self._received += payload
            elif kind == CREDIT:
                self._credit += number
            elif kind in (END, RESET):
                self._end, self._detail = name, payload.decode(errors="replace")
            elif kind == CANCEL:
                self.cancelled = True
            self._changed.notify_all()

    def _run(self, action: Action, name: str, request: bytes, over: Callable[[], object]) -> None:
        try:
            code, payload = "", action(name, request, self) or b""
        except BaseException as error:
            stated = error.code if isinstance(error, Error) and error.code == _CANCELLED else _RAISED
            code, payload = stated, explain(error).encode(errors="backslashreplace")
        over()
        self._send(DONE, 0, code.encode(), payload)


def serve(channel: Channel, action: Action, at_once: int) -> None:
    """Runs the action for each stream, up to so many at once."""
    streams: dict[int, Stream] = {}
    channel.flush(channel.frame(HELLO, 4, payload=struct.pack("<IHHI", _DATA_BYTES, at_once, _KINDS, 0)))
    while True:
        kind, work, number, body = channel._frame()
        start = 34 if kind == WORK else 2
        end = start + (body[0] | body[1] << 8)
        name, payload = body[start:end].decode(), body[end:]
        if kind == WORK and number == STREAM:
            stream = streams[work] = Stream(channel, work)

            def over(work: int = work) -> None:
                streams.pop(work, None)

            threading.Thread(target=stream._run, args=(action, name, payload, over), daemon=True).start()
        elif taker := streams.get(work):
            # One that has ended meanwhile needs no more.
            taker._take(kind, number, name, payload)
