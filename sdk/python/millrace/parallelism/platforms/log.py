"""A function that runs for the records of a log: an invocation is an append, and its result a record of another log."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from millrace.parallelism import task
from millrace.parallelism.platforms import Answer, Platform, _journal, failure, needed, now_ms, returned
from millrace.parallelism.record import RunError

REQUESTS, RESULTS = "parallelism/requests", "parallelism/results"
WORKERS_MAX = 64
#: Logs that keep every record of the largest experiment.
HISTORY = 200_000


class Log(Platform):
    """Instances are the workers of the function, which is deployed if the namespace is on this machine."""

    name = "log"

    async def start(self) -> None:
        import millrace
        from millrace._namespace import LocalNamespace

        place = self.options.url or os.environ.get("MILLRACE_NAMESPACE")
        if place is None:
            needed(self.options, self.name, "the directory or address of a namespace that a host serves, as in --url farm")
        self._numbers: dict[int, str] = {}
        self._waiting: dict[str, asyncio.Future[tuple[Any, float]]] = {}
        self._reader: Optional[asyncio.Task[None]] = None
        self._namespace = await millrace.aopen(place)
        await self._namespace.create_log(REQUESTS, HISTORY)
        await self._namespace.create_log(RESULTS, HISTORY)
        functions = {function.name: function for function in await self._namespace.functions()}
        name = self.options.function
        if isinstance(self._namespace.sync, LocalNamespace):
            workers = self.options.workers or min(self.experiment.invocations, os.cpu_count() or 1)
            if not 1 <= workers <= WORKERS_MAX:
                raise RunError(f"--workers {workers}: a function has 1 to {WORKERS_MAX} workers")
            memory = max(self.experiment.memory_mib or 256, 128) << 20
            settings: dict[str, Any] = {"memory": memory, "timeout": self.options.timeout_s, "retries": 0}
            await self._namespace.deploy(task.on_record, name=name, on=[REQUESTS], concurrency=workers, ordered=False, **settings)
        elif name not in functions or REQUESTS not in functions[name].on:
            raise RunError(
                f"--on log: '{place}' has no function '{name}' for the log {REQUESTS}; on the host's machine, run "
                f"`millrace function deploy {name} --runtime python --code {task.__file__} --handler task:on_record --on {REQUESTS} --concurrency 8`"
            )
        begin = await self._namespace.latest(RESULTS) + 1
        self._reader = asyncio.create_task(self._read(begin))

    async def _read(self, begin: int) -> None:
        try:
            async for record in self._namespace.tail(RESULTS, begin):
                received = now_ms()
                body = json.loads(record.data)
                future = self._waiting.pop(str(body.get("id")), None)
                if future is not None and not future.done():
                    future.set_result((body, received))
        except Exception as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(RunError(f"results can no longer be read: {error}"))

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        id = str(request["id"])
        future: asyncio.Future[tuple[Any, float]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        try:
            number = await self._namespace.append(REQUESTS, json.dumps({**request, "answer_to": RESULTS}).encode())
        except Exception as error:
            self._waiting.pop(id, None)
            return failure("refused", error, answered_ms=now_ms())
        accepted = now_ms()
        self._numbers[number] = id
        try:
            body, received = await future
        except RunError as error:
            return failure("lost", error, answered_ms=accepted)
        finally:
            self._waiting.pop(id, None)
        if self.experiment.asynchronous:
            return returned(body, min(accepted, received), {}, received)
        return returned(body, received, {})

    async def finish(self, answers: list[tuple[str, Answer]]) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(_journal.times, self._namespace.sync, REQUESTS, self._numbers)

    async def close(self) -> None:
        if getattr(self, "_reader", None) is not None:
            assert self._reader is not None
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if hasattr(self, "_namespace"):
            await self._namespace.close()
