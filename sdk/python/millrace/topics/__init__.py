"""Topics: logs that the hosts of a cluster replicate.

    with millrace.open("mr://127.0.0.1:7171/a") as ns:
        ns.create_topic("env_raw")
        env = ns.topic("env_raw", codec=millrace.codecs.Json())
        env.publish({"celsius": 21.5})
        for entry in env.tail(1, timeout=1):
            print(entry.seqno, entry.value)

Every host of the cluster can be used for every topic. For a namespace that was opened by its files, the host that serves it is used.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from millrace._log import Series
from millrace._records import StoredRecord, _native
from millrace._worker import NotFound, Unavailable

if TYPE_CHECKING:
    from millrace._namespace import Namespace
    from millrace.codecs import Codec

T = TypeVar("T")

#: The largest index that a record can have.
_INDEX_MAX = 2**64 - 1
#: Most records of one request.
_PAGE_MAX = 1024
#: How long the host has a request wait at a time: a tail that is closed from another thread ends after that.
_SLICE_S = 1.0
#: How long a tail tries to reach its host, or a group without a leader, before it raises what prevents it.
_PATIENCE_S = 30.0
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Subscription:
    """A function that runs for the records of a topic."""

    function: str
    #: The id of the host that runs it.
    host: str
    #: Records that left the topic before the host could run the function for them; known only on its own host.
    missed: int = 0
    #: Why it does not proceed, if it does not; only on its own host.
    trouble: Optional[str] = None


@dataclass(frozen=True)
class Feed:
    """A log whose records are published to a topic."""

    log: str
    #: The id of the host that has the log.
    host: str
    #: The last record of the log that was published.
    published: int = 0
    #: Why it does not proceed, if it does not; only on its own host.
    trouble: Optional[str] = None
    #: Records that left the log before they could be published, since the host was started; known only on its own host.
    missed: int = 0


@dataclass(frozen=True)
class TopicStat:
    """A topic, as the host that answered knows it."""

    name: str
    #: The group of hosts that agrees on its records.
    group: str
    #: Whether the host keeps the group. If it does not, it knows nothing of what follows.
    known: bool
    #: How many of its newest records can be read; None for all.
    history: Optional[int] = None
    #: When a publish is acknowledged: "quorum" or "leader".
    durability: str = ""
    #: The oldest record that can be read, 0 if there is none.
    earliest: int = 0
    #: The newest record, 0 if there is none.
    latest: int = 0
    subscriptions: tuple[Subscription, ...] = ()
    feeds: tuple[Feed, ...] = ()
    #: What keeps its records: "builtin", the hosts of its group, or "nats".
    engine: str = "builtin"
    #: Why it cannot be used on the host that was asked. Then `earliest` and `latest` are 0.
    trouble: Optional[str] = None


def _stat(told: dict[str, Any]) -> TopicStat:
    if told.get("subscriptions") is None:
        return TopicStat(told["topic"], told["group"], False)
    subscriptions = (
        Subscription(one["function"], one["host"], one.get("missed") or 0, one.get("trouble"))
        for one in told["subscriptions"]
    )
    feeds = (
        Feed(one["log"], one["host"], one["published"], one.get("trouble"), one.get("missed") or 0)
        for one in told["feeds"]
    )
    return TopicStat(
        name=told["topic"],
        group=told["group"],
        known=True,
        history=told["history"],
        durability=told["durability"],
        earliest=told["earliest"] if told.get("latest") else 0,
        latest=told.get("latest") or 0,
        subscriptions=tuple(subscriptions),
        feeds=tuple(feeds),
        engine=told.get("engine", "builtin"),
        trouble=told.get("trouble"),
    )


class TopicRecords(Iterator[StoredRecord]):
    """Records of a topic as they are read. `next` is the index of the next one: pass it to `tail` to resume later."""

    def __init__(
        self, calls: _native.Topics, topic: str, start: int, stop: Optional[int] = None, timeout: Optional[float] = None
    ) -> None:
        self._calls, self._topic, self._stop, self._timeout = calls, topic, stop, timeout
        self._held: deque[StoredRecord] = deque()
        self._closed = False
        #: The newest index that was seen.
        self._seen = 0
        #: The index of the next record.
        self.next = start
        #: As for a log before its first record: a topic that was recreated is noticed when its newest record is below one that was read.
        self.incarnation = 0

    def batch(self, most: int) -> list[StoredRecord]:
        """Waits for one record, and returns it with up to `most - 1` available records that follow it; returns none at the end."""
        self._fill()
        taken = [self._held.popleft() for _ in range(min(most, len(self._held)))]
        if taken:
            self.next = taken[-1].seqno + 1
        return taken

    def _fill(self) -> None:
        since = time.monotonic()
        while not self._held and not self._closed:
            count = _PAGE_MAX if self._stop is None else min(_PAGE_MAX, self._stop - self.next)
            if count <= 0:
                return
            if self._stop is not None:
                self._held.extend(self._calls.range(self._topic, self.next, count))
                if not self._held:
                    return
                continue
            left = _SLICE_S if self._timeout is None else since + self._timeout - time.monotonic()
            self._held.extend(self._persistently(count, max(0.0, min(left, _SLICE_S))))
            if left <= 0:
                return

    def _persistently(self, count: int, wait: float) -> list[StoredRecord]:
        """The next records, or none after this number of seconds; while the host cannot be reached, or its group has no leader, tries again."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                latest = self._calls.latest(self._topic, self.next - 1, wait)
                if latest < self._seen:
                    raise _native.error("MR7223", f"topic '{self._topic}' was removed and recreated")
                self._seen = latest
                if latest < self.next:
                    return []
                return self._calls.range(self._topic, self.next, count)
            except Unavailable:
                if self._closed or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Ends the iteration; can be called from any thread."""
        self._closed = True

    def __iter__(self) -> TopicRecords:
        return self

    def __next__(self) -> StoredRecord:
        taken = self.batch(1)
        if not taken:
            raise StopIteration
        return taken[0]


class Topics:
    """The topics of a cluster, through one of its hosts: the source of `Topic`."""

    def __init__(self, address: str, calls: _native.Topics) -> None:
        self._address = address
        self.calls = calls

    @property
    def address(self) -> str:
        """The address of the host."""
        return self._address

    def get(self, log: str, seqno: Optional[int] = None, *, wait: float = 0.0) -> StoredRecord:
        """The record with this index, or the newest; waits for it for at most `wait` seconds."""
        if wait:
            self.calls.latest(log, 0 if seqno is None else max(seqno, 1) - 1, wait)
        return self.calls.get(log, seqno)

    def latest(self, log: str) -> int:
        """The index of the newest record, 0 if there is none."""
        return self.calls.latest(log)

    def bounds(self, log: str) -> tuple[Optional[int], int, int]:
        """The history, the oldest record and the newest one."""
        # In this order, so that the newest is at least as new as this call; it also lets the host follow the topic's group.
        latest = self.calls.latest(log)
        stat = self.stat(log)
        return stat.history, stat.earliest, max(stat.latest, latest)

    def range(self, log: str, start: Optional[int] = None, stop: Optional[int] = None) -> TopicRecords:
        """The records from `start` up to, but not including, `stop`."""
        if start is None:
            _, earliest, latest = self.bounds(log)
        else:
            earliest, latest = start, self.latest(log)
        end = latest + 1 if stop is None else max(min(stop, latest + 1), 0)
        return TopicRecords(self.calls, log, max(earliest, 1), end)

    def tail(
        self, log: str, start: Optional[int] = None, *, timeout: Optional[float] = None, incarnation: int = 0
    ) -> TopicRecords:
        """The records from `start` on, and then each new one."""
        first = self.latest(log) + 1 if start is None else start
        if not 1 <= first <= _INDEX_MAX:
            raise _native.error("MR1003", f"{first} is not the index of a record")
        return TopicRecords(self.calls, log, first, None, timeout)

    def all(self) -> list[TopicStat]:
        """Every topic, by name."""
        stats: list[TopicStat] = []
        after: Optional[str] = ""
        while after is not None:
            after = self._page(after, stats)
        return stats

    def stat(self, name: str) -> TopicStat:
        """One topic."""
        # Names are listed in order, and the list can begin after any text that is less than the name.
        after: Optional[str] = name[:-1]
        while after is not None and after < name:
            stats: list[TopicStat] = []
            after = self._page(after, stats)
            for stat in stats:
                if stat.name == name:
                    return stat
        error = _native.error("MR7202", f"no topic '{name}'")
        assert isinstance(error, NotFound)
        raise error

    def _page(self, after: str, stats: list[TopicStat]) -> Optional[str]:
        told = json.loads(self.calls.page(after))
        stats += map(_stat, told["topics"])
        following: Optional[str] = told.get("next")
        return following

    def close(self) -> None:
        """Closes the connections."""
        self.calls.close()


class Topic(Series[T]):
    """A topic, as a sequence of values: `topic[17]`, `topic[-1]`, `topic[10:20]`, `len(topic)`, `for value in topic`.

    Numbers are the indexes of records: they start at 1, have no gaps and never change. A read sees every record that was acknowledged
    before it, through any host. A slice that begins with a record that has left the topic's history raises `Gone`.
    """

    __slots__ = ("namespace", "topics")

    KIND = "topic"

    def __init__(self, namespace: Namespace, topics: Topics, name: str, codec: Codec[T]) -> None:
        super().__init__(topics, name, codec)
        self.namespace = namespace
        self.topics = topics

    def publish(
        self, value: T, *, key: Optional[str] = None, durability: Optional[str] = None, patience: float = 0.0
    ) -> int:
        """Publishes a value, and returns its index once a majority of the topic's group has the record on disk.

        With the durability "leader" it returns 0 once the leader has the record on disk. If the call raises `Unavailable` or `TimedOut`,
        it is unknown whether the record is in the topic: repeat the call with the same `key` (1 to 128 bytes) through any host, and the
        topic has the record once. If too many requests wait for the group, the call waits up to `patience` seconds before it raises `Busy`.
        """
        return self.topics.calls.publish(self.name, self.encode(value), key, durability, patience)

    def subscribe(self, function: str) -> None:
        """Runs a function of this host's namespace for each record that is published from now on, once for each."""
        self.topics.calls.subscribe(self.name, function)

    def unsubscribe(self, function: str) -> None:
        """Ends a subscription of this host."""
        self.topics.calls.unsubscribe(self.name, function)

    def feed(self, log: str) -> None:
        """Publishes each record that is appended to a log of this host's namespace from now on, once and in order."""
        self.topics.calls.feed(self.name, log)

    def unfeed(self, log: str) -> None:
        """Stops publishing the records of a log."""
        self.topics.calls.unfeed(self.name, log)

    def stat(self) -> TopicStat:
        """The topic: its group, subscriptions and feeds."""
        self.topics.latest(self.name)
        return self.topics.stat(self.name)
