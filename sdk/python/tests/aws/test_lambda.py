"""The executor on AWS Lambda, against AWS's own emulator and runtime."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Host

import millrace
from millrace.executor import RemoteTraceback, _task

boto3 = pytest.importorskip("boto3")
pytest.importorskip("cloudpickle")

from endpoint import Endpoint, bucket  # noqa: E402

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
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package for deployment, unpacked."""
    folder = tmp_path_factory.mktemp("package")
    file = folder / "function.zip"
    wrote = subprocess.run(
        [sys.executable, "-m", "millrace.lambda_handler", str(file)], cwd="/", capture_output=True, text=True, timeout=300, check=False
    )
    assert wrote.returncode == 0 and "handler millrace.lambda_handler.handler" in wrote.stdout, wrote.stdout + wrote.stderr
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def storage() -> Iterator[str]:
    """Where S3 is."""
    with bucket("tasks") as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", url)
        yield url


@pytest.fixture(scope="module")
def endpoint(package: Path, storage: str) -> Iterator[Endpoint]:
    """A function with two environments."""
    endpoint = Endpoint(package, 2, limit_s=12, AWS_ENDPOINT_URL_S3=storage)
    yield endpoint
    endpoint.close()


@pytest.fixture
def executor(endpoint: Endpoint) -> Iterator[millrace.Executor]:
    """As a program makes it."""
    with on(endpoint, workers=2) as executor:
        yield executor


def on(at: Endpoint, *place: Any, **settings: Any) -> millrace.Executor:
    return millrace.Executor(*place, **{"backend": "lambda", "function": "function", "endpoint": at.url, **settings})


def test_bodies_and_closures_run_there(executor: millrace.Executor) -> None:
    base = 10

    def add(number: int, *, more: int = 0) -> tuple[int, int]:
        return base + number + more, os.getpid()

    assert isinstance(executor, millrace.Executor)
    value, pid = executor.submit(add, 3, more=4).result(120)
    assert value == 17 and pid != os.getpid()
    assert list(executor.map(lambda x, y: x * y, range(5), range(5))) == [0, 1, 4, 9, 16]
    assert list(executor.map(pow, range(10), [2] * 10, chunksize=3)) == [x * x for x in range(10)]
    futures = [executor.submit(pow, x, 2) for x in range(10)]
    assert {future.result() for future in concurrent.futures.as_completed(futures, 120)} == {x * x for x in range(10)}


def test_an_exception_is_a_result_with_its_traceback_and_is_not_retried(endpoint: Endpoint, executor: millrace.Executor) -> None:
    def fail() -> None:
        raise ZeroDivisionError("no way")

    before = endpoint.calls
    with pytest.raises(ZeroDivisionError, match="no way") as raised:
        executor.submit(fail).result(120)
    assert isinstance(raised.value.__cause__, RemoteTraceback) and "in fail" in str(raised.value.__cause__)
    assert endpoint.calls == before + 1
    with pytest.raises(ModuleNotFoundError) as missing:
        executor.submit(pytest.skip).result(120)
    assert "register_module(_pytest)" in missing.value.__notes__[0]
    with pytest.raises(SystemExit):
        executor.submit(sys.exit, 3).result(120)


def test_more_workers_than_the_function_may_have_wait_and_lose_nothing(endpoint: Endpoint) -> None:
    before = endpoint.calls
    with on(endpoint, workers=8) as many:
        assert sorted(many.map(lambda x: x + 1, range(24))) == list(range(1, 25))
    assert endpoint.calls > before + 24 and endpoint.most <= 2


def test_workers_bound_how_many_run_at_once(endpoint: Endpoint) -> None:
    before, endpoint.most = endpoint.calls, 0
    with on(endpoint, workers=1) as one:
        assert list(one.map(abs, range(-6, 0))) == [6, 5, 4, 3, 2, 1]
    assert endpoint.most == 1 and endpoint.calls == before + 6


def test_a_refusal_for_the_rate_that_lasts_is_an_error(endpoint: Endpoint) -> None:
    with on(endpoint, workers=1, throttle_timeout=0.5) as executor:
        # AWS names the refusal; other endpoints may only send the status.
        endpoint.faults += [lambda _: THROTTLED, lambda _: (429, {"Retry-After": "0"}, b"")]
        assert executor.submit(abs, -1).result(60) == 1
        endpoint.faults += [lambda _: THROTTLED] * 50
        with pytest.raises(millrace.Busy, match="MR7133.*Rate Exceeded"):
            executor.submit(abs, -1).result(60)
        endpoint.faults.clear()


def test_a_process_that_ends_is_replaced_and_the_task_tried_again(endpoint: Endpoint) -> None:
    before = endpoint.calls
    with on(endpoint, workers=1, retries=1) as executor:
        with pytest.raises(millrace.FunctionFailed, match="MR7135: after 2 attempts: .*exit status 3"):
            executor.submit(os._exit, 3).result(120)
        assert executor.submit(abs, -4).result(120) == 4
    assert endpoint.calls == before + 3


def test_a_lost_answer_has_the_task_run_again_with_the_same_key(endpoint: Endpoint, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def write() -> str:
        with open(ran, "a") as file:
            file.write(millrace.idempotency_key() + "\n")
        return millrace.idempotency_key()

    def lose(invoke: Callable[[], Any]) -> None:
        assert invoke()[0] == 200

    with on(endpoint, workers=1) as executor:
        endpoint.faults.append(lose)
        key = executor.submit(write).result(120)
        other = executor.submit(millrace.idempotency_key).result(120)
    assert ran.read_text() == f"{key}\n" * 2 and other != key
    with pytest.raises(RuntimeError):
        millrace.idempotency_key()


def test_a_task_that_never_returns_is_ended_and_its_environment_is_kept(endpoint: Endpoint) -> None:
    def forever() -> None:
        while True:
            pass

    with on(endpoint, workers=1, timeout=0.5) as executor:
        pid = executor.submit(os.getpid).result(120)
        begun = time.monotonic()
        with pytest.raises(millrace.TimedOut, match="MR7134: the task ran for 0.5 s.*executor's `timeout`") as ended:
            executor.submit(forever).result(120)
        assert ended.value.remedy and time.monotonic() - begun < 60
        pids = set(executor.map(lambda _: os.getpid(), range(4)))
        assert pid in pids


def test_the_limit_of_the_function_is_an_error_too(package: Path) -> None:
    endpoint = Endpoint(package, 1, limit_s=2)

    def deaf() -> None:
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass

    try:
        with on(endpoint) as executor:
            with pytest.raises(millrace.TimedOut, match="MR7134.*function's own limit"):
                executor.submit(time.sleep, 60).result(120)
            with pytest.raises(millrace.TimedOut, match="MR7134.*Task timed out after 2.00 seconds"):
                executor.submit(deaf).result(120)
            assert executor.submit(abs, -1).result(120) == 1
    finally:
        endpoint.close()


def test_what_is_too_long_is_refused_or_goes_through_storage(endpoint: Endpoint, executor: millrace.Executor) -> None:
    before = endpoint.calls
    with pytest.raises(millrace.Invalid, match="MR7131") as long:
        executor.submit(len, bytes(7 << 20))
    assert "storage" in long.value.remedy and endpoint.calls == before
    with pytest.raises(millrace.Invalid, match="MR7131: a result of 7340"):
        executor.submit(bytes, 7 << 20).result(120)
    s3 = boto3.client("s3")
    with on(endpoint, workers=2, storage="s3://tasks/of/us") as stored:
        assert stored.submit(len, bytes(7 << 20)).result(120) == 7 << 20
        assert stored.submit(bytes, 7 << 20).result(120) == bytes(7 << 20)
        assert stored.submit(lambda sent: sent[::-1], b"ab" * (4 << 20)).result(120) == b"ba" * (4 << 20)
        assert stored.submit(abs, -1).result(120) == 1
    assert s3.list_objects_v2(Bucket="tasks")["KeyCount"] == 0
    with on(endpoint, storage="s3://nowhere") as lost, pytest.raises(millrace.Unavailable, match="MR7136.*NoSuchBucket"):
        lost.submit(len, bytes(7 << 20)).result(120)


def test_another_version_of_python_is_refused_before_anything_is_opened(
    executor: millrace.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_task, "body", lambda version, pickled: bytes((3, 1)) + b"no pickle")
    with pytest.raises(millrace.FunctionFailed, match="MR7137: the program runs Python 3.1, and the workers 3") as skew:
        executor.submit(abs, 1).result(120)
    assert "runtime" in skew.value.remedy


def test_initializers_run_once_in_each_environment(endpoint: Endpoint) -> None:
    def prepare(value: int) -> None:
        os.environ["PREPARED"] = os.environ.get("PREPARED", "") + str(value)

    with on(endpoint, workers=1, initializer=prepare, initargs=(7,)) as prepared:
        assert set(prepared.map(lambda _: os.environ["PREPARED"], range(4))) == {"7"}

    def refuse() -> None:
        raise RuntimeError("cannot")

    with on(endpoint, initializer=refuse) as broken, pytest.raises(concurrent.futures.BrokenExecutor, match="cannot"):
        broken.submit(abs, 1).result(120)


def test_a_task_that_has_not_begun_can_be_cancelled(endpoint: Endpoint) -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(invoke: Callable[[], Any]) -> Any:
        begun.set()
        go.wait(60)
        return invoke()

    endpoint.faults.append(wait)
    with on(endpoint, workers=1) as executor:
        first, second = executor.submit(abs, -1), executor.submit(abs, -2)
        begun.wait(60)
        assert second.cancel() and not first.cancel()
        go.set()
        assert first.result(120) == 1 and second.cancelled()
    with pytest.raises(RuntimeError):
        executor.submit(abs, 1)


def test_refusals_of_the_endpoint_are_named(endpoint: Endpoint, package: Path) -> None:
    with on(endpoint, function="other") as other, pytest.raises(millrace.Unavailable, match="MR7136: function 'other': .*not found"):
        other.submit(abs, 1).result(120)
    denied = 403, {"x-amzn-ErrorType": "AccessDeniedException"}, b'{"Message":"not authorized to perform: lambda:InvokeFunction"}'
    endpoint.faults.append(lambda _: denied)
    with on(endpoint) as stranger, pytest.raises(millrace.Unavailable, match="MR7136.*AccessDenied.*not authorized"):
        stranger.submit(abs, 1).result(120)
    nobody = on(endpoint, endpoint="http://127.0.0.1:9", retries=0)
    with nobody, pytest.raises(millrace.Unavailable, match="MR7136: after 1 attempt: .*127.0.0.1:9"):
        nobody.submit(abs, 1).result(120)


def test_a_function_with_another_handler_is_named(package: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("def handler(event, context):\n    return {'hello': 'world'}\n")
    endpoint = Endpoint(package, 1, handler="theirs.handler", PYTHONPATH=str(tmp_path))
    try:
        with on(endpoint) as executor, pytest.raises(millrace.FunctionFailed, match="MR7132.*hello"):
            executor.submit(abs, 1).result(120)
    finally:
        endpoint.close()
    # No cloudpickle.
    (tmp_path / "millrace").symlink_to(package / "millrace")
    endpoint = Endpoint(tmp_path, 1)
    try:
        with on(endpoint) as executor, pytest.raises(millrace.FunctionFailed, match="MR7132.*No module named 'cloudpickle'"):
            executor.submit(abs, 1).result(120)
    finally:
        endpoint.close()


def test_settings_that_cannot_be_are_refused(endpoint: Endpoint) -> None:
    for settings in ({"function": None}, {"memory": 1 << 20}, {"workers": 0}, {"storage": "file:///tmp"}, {"endpoint": "nonsense"}):
        with pytest.raises(millrace.Invalid, match="MR7130"):
            on(endpoint, **settings)
    with pytest.raises(millrace.Invalid, match="MR7130: backend='azure'"):
        millrace.Executor(backend="azure")
    with pytest.raises(millrace.Invalid, match="MR7130: backend='cluster' has no setting 'function'"):
        millrace.Executor(function="x")


def test_loops_run_there(executor: millrace.Executor) -> None:
    for schedule in ("dynamic", "static"):
        told: list[tuple[int, int]] = []
        millrace.parallel_for(
            executor, 11, lambda index: None, workers=2, schedule=schedule, chunk=4, progress=lambda *at, told=told: told.append(at)
        )
        assert told[-1] == (11, 11)
    with pytest.raises(ZeroDivisionError):
        millrace.parallel_for(executor, 5, lambda index: 1 // (index - 3), workers=2)


def test_tasks_reach_shared_objects_and_their_calls_count_once(
    endpoint: Endpoint, ns: millrace.Namespace, host: Callable[..., Host]
) -> None:
    def lose(invoke: Callable[[], Any]) -> None:
        assert invoke()[0] == 200

    address = host(ns).address
    with millrace.connect(address) as farm, on(endpoint, farm, workers=2) as executor:
        total, seen = farm.AtomicLong("total"), farm.List("seen")

        def work(number: int) -> int:
            seen.append(number)
            return int(total.add(number))

        list(executor.map(work, range(8)))
        assert total.get() == sum(range(8)) and sorted(seen) == list(range(8))
        endpoint.faults.append(lose)
        assert executor.submit(work, 100).result(120) == total.get() == sum(range(8)) + 100
        assert len(seen) == 9
        barrier = farm.Barrier("both", 2)
        assert sorted(executor.map(lambda _: barrier.wait(60), range(2))) == [0, 1]
    with on(endpoint, address) as own:
        mine = millrace.objects.AtomicLong("mine")
        assert own.submit(mine.add, 3).result(120) == mine.get() == 3
        own.shutdown(wait=False)
    with on(endpoint) as alone, pytest.raises(RuntimeError, match="cannot use shared objects"):
        alone.submit(lambda: millrace.objects.AtomicLong("total").get()).result(120)
