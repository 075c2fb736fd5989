"""Processes of this machine, one for each invocation that finds none idle: how parallel its processors allow the task to be."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.parallelism import task
from millrace.parallelism.platforms import Answer, Platform, failure, now_ms, returned


class Local(Platform):
    """Instances are processes, which stay for later invocations."""

    name = "local"
    is_asynchronous = False
    _idle: list[asyncio.subprocess.Process]
    _all: list[asyncio.subprocess.Process]

    async def start(self) -> None:
        self._idle, self._all = [], []

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        try:
            process = self._idle.pop() if self._idle else await self._make()
        except OSError as error:
            return failure("refused", f"no process can be started: {error.strerror}", answered_ms=now_ms())
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except OSError as error:
            return failure("failed", f"the process ended: {error}", answered_ms=now_ms())
        answered = now_ms()
        if not line:
            return failure("failed", f"the process ended with {await process.wait()}", answered_ms=answered)
        self._idle.append(process)
        return returned(json.loads(line), answered, {})

    async def _make(self) -> asyncio.subprocess.Process:
        pipe, file = asyncio.subprocess.PIPE, str(Path(task.__file__))
        process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", file, stdin=pipe, stdout=pipe)
        self._all.append(process)
        return process

    async def close(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()
        for process in self._all:
            await process.wait()
