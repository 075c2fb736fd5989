"""The benchmark of parallelism on AWS Lambda, against AWS's own emulator and runtime, and moto's S3."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("boto3")
pytest.importorskip("httpx")

from endpoint import Endpoint, bucket  # noqa: E402

from millrace.parallelism import RunError, measure, package  # noqa: E402
from millrace.parallelism import run as running  # noqa: E402
from millrace.parallelism.platforms import Options  # noqa: E402
from millrace.parallelism.record import parse_experiment  # noqa: E402

THROTTLED = 429, {"x-amzn-ErrorType": "TooManyRequestsException"}, b'{"Type":"User","message":"Rate Exceeded."}'


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    """Those that the emulators take, which is any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield


@pytest.fixture(scope="module")
def storage() -> Iterator[str]:
    """Where S3 is."""
    with bucket("results") as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", url)
        yield url


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, storage: str) -> Iterator[Endpoint]:
    """The function's package, in two environments."""
    folder = tmp_path_factory.mktemp("package")
    package.write("lambda", folder / "function.zip")
    with zipfile.ZipFile(folder / "function.zip") as archive:
        archive.extractall(folder / "unpacked")
    endpoint = Endpoint(folder / "unpacked", 2, handler="task.handler", AWS_ENDPOINT_URL_S3=storage)
    yield endpoint
    endpoint.close()


def test_environments_are_met_again_and_calls_beyond_the_limit_refused(endpoint: Endpoint) -> None:
    options = Options(url=endpoint.url, function="function")
    first = running.run("lambda", parse_experiment("2/0/S/s"), options, seconds=0.2)
    assert [one.error for one in first.invocations] == [None, None] and measure(first).instances <= 2
    endpoint.faults += [lambda _: THROTTLED] * 3
    run = running.run("lambda", parse_experiment("12/2/S/b"), options, seconds=0.2)
    numbers = measure(run)
    # How many calls find both environments busy depends on the machine.
    assert numbers.failures == {"refused 429": 12 - numbers.ran} and 1 <= numbers.ran <= 9
    before = {one.instance for one in first.invocations}
    assert numbers.cold == len({one.instance for one in run.invocations if one.ran} - before)
    assert numbers.instances <= 2 and all(one.extra["request"] for one in run.invocations if one.ran)


def test_asynchronous_results_come_through_the_bucket(endpoint: Endpoint) -> None:
    options = Options(url=endpoint.url, function="function", bucket="results")
    run = running.run("lambda", parse_experiment("1/0/C/s", True, 1000), options)
    (one,) = run.invocations
    assert one.status == "ok" and one.received_ms is not None and one.answered_ms is not None and one.received_ms >= one.answered_ms
    import boto3

    assert boto3.client("s3").list_objects_v2(Bucket="results")["KeyCount"] == 0, "what was fetched is deleted"
    with pytest.raises(RunError, match="needs --bucket"):
        running.run("lambda", parse_experiment("1/0/C/s", True, 1000), Options(url=endpoint.url, function="function"))


def test_a_function_that_is_not_there_fails_and_says_so(endpoint: Endpoint) -> None:
    run = running.run("lambda", parse_experiment("2/0/S/s"), Options(url=endpoint.url, function="nosuch"), seconds=0.1)
    assert all("404 ResourceNotFoundException" in (one.error or "") for one in run.invocations)


def test_a_region_is_needed(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(RunError, match="give --region"):
        running.run("lambda", parse_experiment("1/0/S/s"), Options(url=endpoint.url))
