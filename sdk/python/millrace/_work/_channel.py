"""The channel of a worker to its host: frames, as spec/protocol/worker.md defines them, on a socket."""

from __future__ import annotations

import collections
import os
import select
import socket
import struct
import threading

from millrace._errors import Error, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from millrace._worker import Context

# Small, because `os.read` allocates it each time, and beyond 128 KiB that is a system call.
_RECEIVE_BYTES = 16 << 10
# While answers wait to be received, of up to 16 MiB each.
_RECEIVE_MORE_BYTES = 1 << 20
# How often a thread that writes looks whether another one still receives.
_AGAIN_MS = 20
# length, kind, flags, name length, work, number
HEAD = struct.Struct("<IBBHII")
WORK, ANSWER, CALLBACK = 1, 2, 3
HELLO, REFUSE, APPEND, DONE, GET, LATEST, NOW, RANDOM, OUTPUT, CALL, CALLED_BACK, FIELDS, CLASS, TABLE = range(16, 30)
OVER = "the run is over; its context can no longer be used"


class Channel:
    """Frames on a descriptor. One thread at a time receives, for all threads that wait for something."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # In a child that the function forked, which has no business here.
        self.forked = False
        self._staged: list[bytes] = []
        self._received = b""
        self._at = 0
        #: Work that has not begun: its id, its kind, and the body.
        self._works: collections.deque[tuple[int, int, bytes]] = collections.deque()
        #: The work in progress, which every frame names.
        self.work = 0
        #: The answer of the request that is pending, which has the number 0.
        self._answer: Optional[bytes] = None
        #: By number, from 1: what takes the answers of calls of objects, which may come at any time.
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

    def frame(self, kind: int, number: int, name: bytes = b"", payload: bytes = b"") -> bytes:
        """A frame of the work in progress."""
        return HEAD.pack(len(name) + len(payload), kind, 0, len(name), self.work, number) + name + payload

    def is_in_use(self, stack: Any) -> bool:
        """Whether this stack writes, receives or waits: an exception would leave a frame incomplete, or an answer untaken."""
        while stack is not None and stack.f_locals.get("self") is not self:
            stack = stack.f_back
        # A method that came back may be interrupted.
        return stack is not None and stack.f_code.co_name != "run_reentering"

    def stage(self, run: Context, frame: bytes) -> None:
        with self._writing:
            if run._channel is None:
                raise RuntimeError(OVER)
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
                raise RuntimeError(OVER)
            self._answer = None
            self.flush(frame)
            self._receive(lambda: self._answer)
            assert self._answer is not None
            return _outcome(self._answer)

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
                    raise RuntimeError(OVER)
                # They make calls, too.
                self.run_reentering()
        return _outcome(answers[0])

    def _send_call(self, run: Context, call: bytes, taken: Callable[[bytes], object]) -> None:
        with self._writing:
            if run._channel is None:
                raise RuntimeError(OVER)
            self._last_call += 1
            number = self._last_call
            # Another thread may take the answer as soon as the call is sent.
            self._calls[number] = taken
            self._flush(self.frame(CALL, number, payload=call), 1)

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
        self.flush(self.frame(CALLED_BACK, number, payload=answer))

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

    def _take(self, kind: int, work: int, number: int, body: bytes) -> None:
        if kind == ANSWER and number == 0:
            self._answer = body
        elif kind == ANSWER:
            taken = self._calls.pop(number, None)
            if taken is not None:
                taken(body)
        elif kind == CALLBACK:
            self._reentering.append((number, body[2:]))
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self.run_reentering)
        elif kind == WORK:
            self._works.append((work, number, body))

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

    def next_work(self) -> tuple[int, bytes]:
        """Begins the next work: its kind and body."""
        if not self._works:
            self._receive(lambda: self._works)
        # What came too late for the run before.
        self._reentering.clear()
        self._calls.clear()
        self.work, kind, body = self._works.popleft()
        return kind, body

    def _is_whole(self) -> bool:
        """Whether a whole frame has been received."""
        available = len(self._received) - self._at
        return available >= 16 and available >= 16 + int.from_bytes(self._received[self._at : self._at + 4], "little")

    def _frame(self) -> tuple[int, int, int, bytes]:
        """The next frame: its kind, work and number, and its name length (2 bytes) and body."""
        received, at = self._received, self._at
        while True:
            available = len(received) - at
            if available >= 16:
                length, kind, _, _, work, number = HEAD.unpack_from(received, at)
                end = at + 16 + length
                if end <= len(received):
                    self._received, self._at = received, end
                    return kind, work, number, received[at + 6 : at + 8] + received[at + 16 : end]
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
