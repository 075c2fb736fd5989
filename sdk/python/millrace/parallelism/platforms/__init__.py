"""The platforms on which functions can run. Each starts, invokes the function once per request, and ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from millrace.parallelism.record import Experiment, RunError

NAMES = ("millrace", "log", "lambda", "openwhisk", "http", "local")
#: A longer text of an error is cut.
ERROR_MAX = 300
#: These mean that the platform does not run the function now.
REFUSALS = (429, 502, 503)


@dataclass(frozen=True)
class Options:
    """Where and how to invoke."""

    url: Optional[str] = None
    function: str = "parallelism"
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: Optional[str] = None
    region: Optional[str] = None
    bucket: Optional[str] = None
    workers: Optional[int] = None
    timeout_s: float = 600.0


@dataclass(frozen=True)
class Answer:
    """What came back for one request: what the function returned, or why it did not."""

    result: Optional[Mapping[str, Any]] = None
    status: str = "ok"
    error: Optional[str] = None
    answered_ms: Optional[float] = None
    received_ms: Optional[float] = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def now_ms() -> float:
    """The client's clock."""
    return time.time() * 1000


def failure(status: str, error: object, **more: Any) -> Answer:
    return Answer(None, status, " ".join(str(error).split())[:ERROR_MAX] or type(error).__name__, **more)


def returned(body: Any, answered_ms: Optional[float], extra: Mapping[str, Any], received_ms: Optional[float] = None) -> Answer:
    """What a function answered: its result, or the error that it tells."""
    told: dict[str, Any] = {"answered_ms": answered_ms, "received_ms": received_ms, "extra": extra}
    if isinstance(body, dict) and isinstance(body.get("start_ms"), (int, float)) and isinstance(body.get("end_ms"), (int, float)):
        if isinstance(body.get("instance"), str):
            return Answer(body, **told)
    text = body.get("errorMessage") or body.get("error") or body if isinstance(body, dict) else body
    return failure("failed", f"the function answered {text!r}" if not isinstance(text, str) else text or "an empty answer", **told)


class Platform:
    """One platform, for one run."""

    name = ""
    #: Whether it can accept an invocation and give its result later.
    is_asynchronous = True

    def __init__(self, options: Options, experiment: Experiment) -> None:
        self.options, self.experiment = options, experiment
        if experiment.asynchronous and not self.is_asynchronous:
            raise RunError(f"--on {self.name} has no asynchronous invocations: leave out --async, or choose another platform")

    async def start(self) -> None:
        """Prepares everything, so that requests can be sent at once."""

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        """Sends one request and waits for its result."""
        raise NotImplementedError

    async def finish(self, answers: list[tuple[str, Answer]]) -> dict[str, dict[str, Any]]:
        """What else is known of the requests, by their ids."""
        return {}

    async def close(self) -> None:
        """Ends what was started."""


def platform(name: str, options: Options, experiment: Experiment) -> Platform:
    """The platform of this name. Only its own libraries are loaded."""
    if name == "local":
        from millrace.parallelism.platforms.local import Local

        return Local(options, experiment)
    if name == "millrace":
        from millrace.parallelism.platforms.host import Workers

        return Workers(options, experiment)
    if name == "log":
        from millrace.parallelism.platforms.log import Log

        return Log(options, experiment)
    if name == "http":
        from millrace.parallelism.platforms.web import Web

        return Web(options, experiment)
    if name == "lambda":
        from millrace.parallelism.platforms.aws import Lambda

        return Lambda(options, experiment)
    if name == "openwhisk":
        from millrace.parallelism.platforms.openwhisk import OpenWhisk

        return OpenWhisk(options, experiment)
    raise RunError(f"--on {name}: there is no such platform; it is one of {', '.join(NAMES)}")


def needed(options: Options, name: str, what: Union[str, None] = None) -> str:
    """The address that a platform needs."""
    if not options.url:
        raise RunError(f"--on {name} needs --url: {what}")
    return options.url
