"""Data that is longer than a record: the function or the arguments of a task, or its result. Its pickle goes into blobs of the host's
memory, part by part, and the record has references to them. Workers have this file, too."""

from __future__ import annotations

import contextlib
import pickle

from millrace.objects import Blob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Optional

    from millrace.objects._spaces import Space

#: One part. A call of an object is one frame, which has 16 MiB at most.
PART_BYTES = 4 << 20


class Parts:
    """The location of a long pickle."""

    def __init__(self, blobs: list[Blob]) -> None:
        self._blobs = blobs

    def load(self, space: Optional[Space] = None) -> Any:
        """Unpickles it without having the whole pickle in memory."""
        return pickle.Unpickler(_Reader(self._blobs, space)).load()

    def delete(self, space: Optional[Space] = None) -> None:
        """Frees the memory of the host. If the host cannot be reached, the end of the application does it."""
        with contextlib.suppress(Exception):
            for blob in self._blobs:
                blob._space = space
                blob._delete()


class _Reader:
    """A file of the parts. It has one of them at a time."""

    def __init__(self, blobs: list[Blob], space: Optional[Space]) -> None:
        self._left, self._space = list(blobs), space
        self._part, self._at = memoryview(b""), 0

    def _ready(self) -> bool:
        while self._at == len(self._part):
            if not self._left:
                return False
            blob = self._left.pop(0)
            blob._space = self._space
            self._part, self._at = memoryview(blob.read()), 0
        return True

    def readinto(self, into: Any) -> int:
        target = memoryview(into).cast("B")
        filled = 0
        while filled < len(target) and self._ready():
            count = min(len(target) - filled, len(self._part) - self._at)
            target[filled : filled + count] = self._part[self._at : self._at + count]
            filled, self._at = filled + count, self._at + count
        return filled

    def read(self, size: int) -> bytes:
        found = bytearray(size)
        return bytes(memoryview(found)[: self.readinto(found)])

    def readline(self) -> bytes:
        line = bytearray()
        while self._ready():
            rest = bytes(self._part[self._at :])
            end = rest.find(b"\n") + 1
            line += rest[: end or None]
            self._at += end or len(rest)
            if end:
                break
        return bytes(line)


class Writer:
    """Writes a long pickle into blobs, part by part."""

    def __init__(self, name: str, space: Optional[Space] = None) -> None:
        self._name, self._space = name, space
        self._blobs: list[Blob] = []
        self._waiting = bytearray()

    def write(self, data: Any) -> None:
        """Appends bytes, or anything that has a buffer."""
        view = memoryview(data).cast("B")
        while view:
            room = PART_BYTES - len(self._waiting)
            self._waiting += view[:room]
            view = view[room:]
            if len(self._waiting) == PART_BYTES:
                self._send()

    @property
    def is_used(self) -> bool:
        """Whether anything is in blobs."""
        return bool(self._blobs)

    def _send(self) -> None:
        blob = Blob(f"large-{self._name}-{len(self._blobs)}", space=self._space)
        self._blobs.append(blob)
        blob.append(bytes(self._waiting))
        self._waiting.clear()

    def close(self) -> Parts:
        """Sends the rest; returns the location of all parts."""
        if self._waiting:
            self._send()
        return Parts(self._blobs)

    def discard(self) -> None:
        """Frees the parts that were sent."""
        Parts(self._blobs).delete(self._space)


def send(name: str, pickled: Iterable[Any], space: Optional[Space] = None) -> Parts:
    """Writes bytes into blobs; returns their location. If there is not enough room, no blob remains."""
    writer = Writer(name, space)
    try:
        for part in pickled:
            writer.write(part)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


class Pickle:
    """The target of the pickler: memory, and from `kept_max` bytes on blobs, or a call of `refuse`."""

    def __init__(self, kept_max: int, refuse: Callable[[], Exception], writer: Optional[Writer] = None) -> None:
        self._kept_max, self._refuse, self._writer = kept_max, refuse, writer
        self._kept: list[bytes] = []
        self._bytes = 0
        #: Whether a part of it is in blobs.
        self.is_large = False

    def write(self, part: Any) -> int:
        # Long arrays come as buffers, which have no length of their own.
        view = memoryview(part)
        self._bytes += view.nbytes
        if self._bytes <= self._kept_max:
            self._kept.append(bytes(view))
            return view.nbytes
        if self._writer is None:
            raise self._refuse()
        if not self.is_large:
            self.is_large = True
            for kept in self._kept:
                self._writer.write(kept)
            self._kept.clear()
        self._writer.write(view if view.contiguous else bytes(view))
        return view.nbytes

    def value(self) -> bytes:
        """The pickle, if it is not large."""
        return b"".join(self._kept)
