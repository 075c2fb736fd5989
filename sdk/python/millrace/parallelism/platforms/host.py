"""Workers of a Millrace host: each invocation is a task of `millrace.Executor`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Mapping
from typing import Any

from millrace.parallelism import task
from millrace.parallelism.platforms import Answer, Platform, _journal, failure, now_ms, returned
from millrace.parallelism.record import RunError

#: A function has at most so many workers.
WORKERS_MAX = 64
#: Threads that submit.
SENDERS = 16


class Workers(Platform):
    """Instances are the workers of a pool. Without an address, a private host has them."""

    name = "millrace"

    async def start(self) -> None:
        import millrace

        self._numbers: dict[int, str] = {}
        workers = self.options.workers or min(self.experiment.invocations, os.cpu_count() or 1)
        if not 1 <= workers <= WORKERS_MAX:
            raise RunError(f"--workers {workers}: a pool has 1 to {WORKERS_MAX} workers")
        millrace.register_module(task)
        # What a worker's Python needs is not part of the task's memory.
        settings: dict[str, Any] = {"workers": workers, "timeout": self.options.timeout_s, "retries": 0}
        if self.options.function != "parallelism":
            settings = {"pool": self.options.function}
        elif self.experiment.memory_mib:
            settings["memory"] = max(self.experiment.memory_mib, 128) << 20
        self._threads = concurrent.futures.ThreadPoolExecutor(min(SENDERS, self.experiment.invocations))
        self._executor = await asyncio.to_thread(lambda: millrace.Executor(self.options.url, **settings))
        # The function's code is sent once, before the measurement.
        await asyncio.to_thread(self._executor._prepare, task.run)

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        ended = 0.0

        def end(_: object) -> None:
            nonlocal ended
            ended = now_ms()
            loop.call_soon_threadsafe(done.set)

        try:
            future = await loop.run_in_executor(self._threads, lambda: self._executor.submit(task.run, dict(request)))
        except Exception as error:
            return failure("refused", error, answered_ms=now_ms())
        accepted = now_ms()
        self._numbers[getattr(future, "_number", 0)] = str(request["id"])
        future.add_done_callback(end)
        await done.wait()
        answered, received = (min(accepted, ended), ended) if self.experiment.asynchronous else (ended, None)
        try:
            return returned(future.result(), answered, {}, received)
        except Exception as error:
            return failure("failed", error, answered_ms=answered, received_ms=received)

    async def finish(self, answers: list[tuple[str, Answer]]) -> dict[str, dict[str, Any]]:
        numbers = {number: id for number, id in self._numbers.items() if number}
        return await asyncio.to_thread(_journal.times, self._executor._connection.remote, f"_tasks/{self._executor._pool}", numbers)

    async def close(self) -> None:
        if hasattr(self, "_executor"):
            await asyncio.to_thread(self._executor.shutdown)
        if hasattr(self, "_threads"):
            self._threads.shutdown(wait=False)
