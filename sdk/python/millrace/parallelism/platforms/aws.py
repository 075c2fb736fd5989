"""AWS Lambda, or an endpoint that speaks as it does. Requests are signed by botocore and sent by httpx."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from millrace.parallelism.platforms import REFUSALS, Answer, Platform, failure, now_ms, returned
from millrace.parallelism.platforms.web import body_of, client, exchange
from millrace.parallelism.record import RunError

#: How often the bucket is listed for results of asynchronous invocations.
POLL_S = 0.5
REPORTS = {
    "init_ms": r"Init Duration: ([\d.]+) ms",
    "billed_ms": r"Billed Duration: ([\d.]+) ms",
    "memory_limit_mib": r"Memory Size: (\d+) MB",
    "memory_used_mib": r"Max Memory Used: (\d+) MB",
}


class Lambda(Platform):
    """The function `--function`. With --async, it puts results into a bucket."""

    name = "lambda"

    async def start(self) -> None:
        try:
            import botocore.auth
            import botocore.session
        except ImportError:
            raise RunError("--on lambda signs requests with botocore: pip install 'millrace[parallelism,lambda]'") from None
        session = botocore.session.Session()
        region = self.options.region or session.get_config_variable("region") or os.environ.get("AWS_REGION")
        if not region:
            raise RunError("--on lambda needs a region: give --region, or set AWS_DEFAULT_REGION")
        credentials = session.get_credentials()
        if credentials is None:
            raise RunError("--on lambda found no credentials of AWS: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`")
        if self.experiment.asynchronous and not self.options.bucket:
            raise RunError("--async --on lambda needs --bucket: the function puts its results there, and needs the right s3:PutObject")
        self._signer = botocore.auth.SigV4Auth(credentials.get_frozen_credentials(), "lambda", region)
        host = (self.options.url or f"https://lambda.{region}.amazonaws.com").rstrip("/")
        self._url = f"{host}/2015-03-31/functions/{self.options.function}/invocations"
        self._http = client(self.options, self.experiment)
        self._waiting: dict[str, asyncio.Future[tuple[Any, float]]] = {}
        self._poller: asyncio.Task[None] | None = None
        if self.experiment.asynchronous:
            import boto3

            self._s3 = boto3.client("s3", region_name=region)
            self._prefix = f"millrace-parallelism/{os.urandom(8).hex()}/"
            self._poller = asyncio.create_task(self._poll())

    def _sign(self, body: bytes) -> dict[str, str]:
        from botocore.awsrequest import AWSRequest

        kind = "Event" if self.experiment.asynchronous else "RequestResponse"
        headers = {"X-Amz-Invocation-Type": kind, "X-Amz-Log-Type": "None" if self.experiment.asynchronous else "Tail", "Content-Type": "application/json"}
        request = AWSRequest("POST", self._url, data=body, headers=headers)
        self._signer.add_auth(request)
        return dict(request.headers.items())

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        sent, key = dict(request), f"{request['id']}.json"
        future: asyncio.Future[tuple[Any, float]] = asyncio.get_running_loop().create_future()
        if self.experiment.asynchronous:
            key = f"{self._prefix}{key}"
            sent |= {"bucket": self.options.bucket, "key": key}
            self._waiting[key] = future
        body = json.dumps(sent).encode()
        answer, answered, failed = await exchange(self._http, "POST", self._url, content=body, headers=self._sign(body))
        if failed is not None:
            return failed
        assert answer is not None
        extra: dict[str, Any] = {"http_status": answer.status_code, "request": answer.headers.get("x-amzn-requestid")}
        told = base64.b64decode(answer.headers.get("x-amz-log-result", "")).decode(errors="replace")
        for name, pattern in REPORTS.items():
            found = re.search(pattern, told)
            if found:
                extra[name] = float(found[1])
        if answer.status_code not in (200, 202):
            status = "refused" if answer.status_code in REFUSALS else "failed"
            kind = answer.headers.get("x-amzn-errortype", answer.reason_phrase)
            return failure(status, f"{answer.status_code} {kind}: {answer.text}", answered_ms=answered, extra=extra)
        if answer.headers.get("x-amz-function-error"):
            content = body_of(answer)
            text = f"{content.get('errorType')}: {content.get('errorMessage')}" if isinstance(content, dict) else content
            return failure("failed", text, answered_ms=answered, extra=extra)
        if not self.experiment.asynchronous:
            return returned(body_of(answer), answered, extra)
        try:
            result, received = await future
        except RunError as error:
            return failure("lost", error, answered_ms=answered, extra=extra)
        return returned(result, answered, extra, received)

    async def _poll(self) -> None:
        """Fetches results as they appear in the bucket."""
        try:
            while True:
                await asyncio.sleep(POLL_S)
                if self._waiting:
                    for key in await asyncio.to_thread(self._list):
                        future = self._waiting.pop(key, None)
                        if future is not None and not future.done():
                            body = await asyncio.to_thread(self._get, key)
                            future.set_result((json.loads(body), now_ms()))
        except Exception as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(RunError(f"results cannot be read from the bucket '{self.options.bucket}': {error}"))

    def _list(self) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.options.bucket, Prefix=self._prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def _get(self, key: str) -> bytes:
        body: bytes = self._s3.get_object(Bucket=self.options.bucket, Key=key)["Body"].read()
        return body

    async def close(self) -> None:
        if getattr(self, "_poller", None) is not None:
            assert self._poller is not None
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
            await asyncio.to_thread(self._clean)
        if hasattr(self, "_http"):
            await self._http.aclose()

    def _clean(self) -> None:
        for key in self._list():
            self._s3.delete_object(Bucket=self.options.bucket, Key=key)
