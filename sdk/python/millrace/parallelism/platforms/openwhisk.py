"""Apache OpenWhisk, and IBM Cloud Functions: blocking invocations, whose activation records tell what the platform measured."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from millrace.parallelism.platforms import REFUSALS, Answer, Platform, failure, needed, now_ms, returned
from millrace.parallelism.platforms.web import body_of, client, exchange
from millrace.parallelism.record import RunError

#: How often the record of an activation is asked for that has not ended.
POLL_S = 0.5


class OpenWhisk(Platform):
    """The action `--function`, in the namespace of the key."""

    name = "openwhisk"

    async def start(self) -> None:
        host = needed(self.options, self.name, "the address of the API, as in --url https://openwhisk.example")
        key = self.options.auth or os.environ.get("OPENWHISK_AUTH", "")
        user, colon, password = key.partition(":")
        if not colon:
            raise RunError("--on openwhisk needs the key USER:PASSWORD: give --auth or set OPENWHISK_AUTH (`wsk property get --auth` prints it)")
        self._http = client(self.options, self.experiment, auth=(user, password))
        self._base = f"{host.rstrip('/')}/api/v1/namespaces/_"

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        url = f"{self._base}/actions/{self.options.function}"
        waits = "false" if self.experiment.asynchronous else "true"
        answer, answered, failed = await exchange(self._http, "POST", url, params={"blocking": waits, "result": "false"}, json=dict(request))
        if failed is not None:
            return failed
        assert answer is not None
        body, received = body_of(answer), None
        activation = body.get("activationId") if isinstance(body, dict) else None
        extra: dict[str, Any] = {"http_status": answer.status_code, "activation": activation}
        if answer.status_code == 202 and activation:
            # It is asynchronous, or it took longer than the platform keeps a connection.
            while True:
                more, received, failed = await exchange(self._http, "GET", f"{self._base}/activations/{activation}")
                if more is not None and more.status_code == 200:
                    body = body_of(more)
                    break
                if more is not None and more.status_code != 404:
                    return failure("lost", f"{more.status_code}: the activation cannot be read", answered_ms=answered, extra=extra)
                await asyncio.sleep(POLL_S)
        elif answer.status_code not in (200, 502) or not isinstance(body, dict) or "response" not in body:
            status = "refused" if answer.status_code in REFUSALS else "failed"
            text = body.get("error") if isinstance(body, dict) else body
            return failure(status, f"{answer.status_code} {answer.reason_phrase}: {text}", answered_ms=answered, extra=extra)
        return _activation(body, answered, received, extra)

    async def close(self) -> None:
        if hasattr(self, "_http"):
            await self._http.aclose()


def _activation(body: Any, answered: float, received: Any, extra: dict[str, Any]) -> Answer:
    """What an activation record tells: waits, and the limits, besides the result."""
    response = body.get("response") if isinstance(body, dict) else None
    if not isinstance(response, dict):
        return failure("failed", f"no activation record: {body!r}", answered_ms=answered, received_ms=received, extra=extra)
    notes = {note["key"]: note.get("value") for note in body.get("annotations") or () if isinstance(note, dict) and "key" in note}
    limits = notes.get("limits")
    extra |= {
        "wait_ms": notes.get("waitTime"),
        # The record of a warm start has no such annotation.
        "init_ms": notes.get("initTime", 0),
        "activation_start_ms": body.get("start"),
        "activation_end_ms": body.get("end"),
        "memory_limit_mib": limits.get("memory") if isinstance(limits, dict) else None,
    }
    result = response.get("result")
    if not response.get("success"):
        text = result.get("error") if isinstance(result, dict) else result
        # 3 is an internal error of the platform; in others the function failed.
        return failure("failed", f"{response.get('status')}: {text}", answered_ms=answered, received_ms=received, extra=extra)
    return returned(result, answered, extra, received)
