"""Processes of this machine, one for each invocation, which all wait before the first is sent: the ideal, as far as its processors go."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.parallelism import task
from millrace.parallelism.platforms import Answer, Platform, failure, now_ms, returned
from millrace.parallelism.record import RunError


class Local(Platform):
    """Instances are processes. One that was used last is used first."""

    name = "local"
    is_asynchronous = False
    _idle: list[asyncio.subprocess.Process]
    _all: list[asyncio.subprocess.Process]

    async def start(self) -> None:
        self._idle, self._all = [], []
        try:
            self._idle = [await self._make() for _ in range(self.experiment.invocations)]
        except OSError as error:
            raise RunError(f"--on local: only {len(self._all)} processes can be started ({error.strerror}); choose fewer invocations") from None
        for process in self._idle:
            # It answers an empty line when it has loaded the task.
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"\n")
            await process.stdout.readline()

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        try:
            # There are fewer if some of them ended.
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
