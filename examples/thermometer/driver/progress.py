"""Shows progress on a terminal; otherwise prints only the durations."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Step:
    """One thing that takes a while."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self.progress, self.name, self.total = progress, name, total

    def count(self, done: int) -> None:
        self.progress.show(f"{self.name}: {done:,} of {self.total:,}")

    def pending(self, functions: dict[str, int]) -> None:
        waiting = ", ".join(f"{name} {count:,}" for name, count in functions.items() if count)
        self.progress.show(f"{self.name}: {waiting or 'almost done'}")


class Progress:
    def __init__(self) -> None:
        self.watched = sys.stderr.isatty()

    @contextmanager
    def step(self, name: str, total: int = 0) -> Iterator[Step]:
        began = time.monotonic()
        self.show(f"{name} …")
        yield Step(self, name, total)
        self.clear()
        amount = f"{total:,} records in " if total else ""
        print(f"{name:<15} {amount}{time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        if self.watched:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.watched:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
