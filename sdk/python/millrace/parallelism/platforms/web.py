"""Functions behind HTTP: Azure Functions, Google Cloud Functions, Knative, or `task.py serve`. An invocation is a POST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from millrace.parallelism.platforms import REFUSALS, Answer, Platform, failure, needed, now_ms, returned
from millrace.parallelism.record import RunError

#: Headers of answers that tell something about the platform.
KEPT = ("server", "date", "function-execution-id", "x-cloud-trace-context", "x-amzn-requestid", "x-ms-request-id", "x-envoy-upstream-service-time")


def client(options: Any, experiment: Any, **more: Any) -> Any:
    """An HTTP client that opens a connection for every invocation, if all are sent at once."""
    try:
        import httpx
    except ImportError:
        raise RunError("requests over HTTP need httpx: pip install 'millrace[parallelism]'") from None
    limits = httpx.Limits(max_connections=experiment.invocations + 8, max_keepalive_connections=experiment.invocations + 8)
    return httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(options.timeout_s, pool=None), headers=dict(options.headers), **more)


async def exchange(http: Any, method: str, url: str, **more: Any) -> tuple[Optional[Any], float, Optional[Answer]]:
    """An HTTP answer and when it came, or the failure to get one."""
    import httpx

    try:
        answer = await http.request(method, url, **more)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise RunError(f"--url {url}: {error}; give an address such as https://host/path") from None
    except httpx.ConnectError as error:
        return None, now_ms(), failure("refused", f"no connection: {error}", answered_ms=None)
    except httpx.HTTPError as error:
        return None, now_ms(), failure("lost", f"{type(error).__name__}: {error}", answered_ms=None)
    return answer, now_ms(), None


def body_of(answer: Any) -> Any:
    """The JSON in an answer, or its text."""
    try:
        return answer.json()
    except ValueError:
        return answer.text


class Web(Platform):
    """The function has this address."""

    name = "http"
    is_asynchronous = False

    async def start(self) -> None:
        self._url = needed(self.options, self.name, "the address of the function, as in --url https://REGION-PROJECT.cloudfunctions.net/parallelism")
        self._http = client(self.options, self.experiment)

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        answer, answered, failed = await exchange(self._http, "POST", self._url, json=dict(request))
        if failed is not None:
            return failed
        assert answer is not None
        extra = {"http_status": answer.status_code, "headers": {name: answer.headers[name] for name in KEPT if name in answer.headers}}
        if answer.status_code == 200:
            return returned(body_of(answer), answered, extra)
        status = "refused" if answer.status_code in REFUSALS else "failed"
        return failure(status, f"{answer.status_code} {answer.reason_phrase}: {answer.text}", answered_ms=answered, extra=extra)

    async def close(self) -> None:
        if hasattr(self, "_http"):
            await self._http.aclose()
