"""An AWS-Lambda-compatible endpoint: AWS's Lambda Runtime Interface Emulator with AWS's runtime for Python, and a front that distributes calls.

The emulator is one execution environment, which runs one call at a time. The front does what AWS's front does: it chooses an environment
that is idle, refuses calls beyond the concurrency limit with status 429, and marks answers of a runtime that failed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Optional

from conftest import ROOT

HERE = Path(__file__).parent
START_S = 60.0
MACHINES = {"x86_64": "x86_64", "aarch64": "arm64"}
#: Status, headers, body.
Answer = tuple[int, dict[str, str], bytes]


def environment() -> Path:
    """A folder with a virtual environment that has AWS's runtime, and the emulator; made once for its requirements."""
    files = [HERE / "requirements.txt", HERE / "emulator.txt"]
    made_of = hashlib.sha256(b"".join(file.read_bytes() for file in files) + sys.version.encode()).hexdigest()
    folder = ROOT / "target/lambda"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.parent / "lambda.lock", "w") as lock:
        # Several processes may run the tests.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make(folder, files, made_of)
    return folder


def _make(folder: Path, files: list[Path], made_of: str) -> None:
    stamp = folder / "stamp"
    if not stamp.exists() or stamp.read_text() != made_of:
        pip = [str(folder / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [*pip, "install", "-r", str(files[0])],
            [*pip, "download", "--no-deps", "-r", str(files[1]), "-d", str(folder / "wheels")],
        ):
            subprocess.run(command, check=True, timeout=900)
        (wheel,) = (folder / "wheels").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            program = archive.read(f"samcli/local/rapid/aws-lambda-rie-{MACHINES[platform.machine()]}")
        (folder / "bin/aws-lambda-rie").write_bytes(program)
        (folder / "bin/aws-lambda-rie").chmod(0o755)
        stamp.write_text(made_of)


@contextlib.contextmanager
def reserved() -> Iterator[int]:
    """A port that the system gives to nobody else meanwhile: bound and not listening, as in the fixture `port`."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until somebody listens."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, f"nobody listens at {port}"
            time.sleep(0.05)


class Endpoint:
    """The front. `faults` are what the next calls meet, one each: given what invokes the function, they answer in its place."""

    def __init__(
        self, package: Path, environments: int, limit_s: int = 30, handler: str = "millrace.lambda_handler.handler", **env: str
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._idle: list[int] = []
        self._lock = threading.Lock()
        self.calls = self.running = self.most = 0
        self.faults: list[Callable[[Callable[[], Answer]], Optional[Answer]]] = []
        folder = environment()
        clean = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(package),
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(limit_s),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            **env,
        }
        for _ in range(environments):
            port, inner = self._stack.enter_context(reserved()), self._stack.enter_context(reserved())
            command = [str(folder / "bin/aws-lambda-rie"), "--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
            command += ["--runtime-api-address", f"127.0.0.1:{inner}", str(folder / "bin/python"), "-m", "awslambdaric", handler]
            null = subprocess.DEVNULL
            process = subprocess.Popen(command, env=clean, cwd=package, stdin=null, stdout=null, stderr=null)
            self._stack.callback(end, process)
            await_port(port, process)
            self._idle.append(port)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._front())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Ends it, and every environment."""
        self._server.shutdown()
        self._server.server_close()
        self._stack.close()

    def _invoke(self, body: bytes) -> Answer:
        """A call of an environment that is idle, as AWS answers."""
        with self._lock:
            if not self._idle:
                return 429, {"x-amzn-ErrorType": "TooManyRequestsException"}, b'{"Type":"User","message":"Rate Exceeded."}'
            port = self._idle.pop()
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            with contextlib.closing(connection):
                connection.request("POST", "/2015-03-31/functions/function/invocations", body)
                answer = connection.getresponse()
                status, found = answer.status, answer.read()
        finally:
            with self._lock:
                self._idle.append(port)
                self.running -= 1
        # The emulator answers 502 when the process has ended; AWS answers 200 and marks it.
        ended = status == 502
        if ended and b'"errorType"' not in found:
            found = json.dumps({"errorType": "Runtime.ExitError", "errorMessage": found.decode()}).encode()
        failed = ended or b'"errorType"' in found or found.startswith(b"Task timed out")
        return 200 if ended else status, {"X-Amz-Function-Error": "Unhandled"} if failed else {}, found

    def _front(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Front(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with endpoint._lock:
                    endpoint.calls += 1
                    fault = endpoint.faults.pop(0) if endpoint.faults else None
                function = self.path.split("/")[3]
                answer: Optional[Answer]
                if fault is not None:
                    answer = fault(lambda: endpoint._invoke(body))
                elif function != "function":
                    answer = 404, {"x-amzn-ErrorType": "ResourceNotFoundException"}, b'{"Type":"User","Message":"Function not found: x"}'
                else:
                    answer = endpoint._invoke(body)
                if answer is None:
                    # The connection ends without an answer.
                    self.close_connection = True
                    return
                status, headers, found = answer
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(found)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_: object) -> None:
                pass

        return Front


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that was started here."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def bucket(name: str) -> Iterator[str]:
    """A server of moto with a bucket; its address."""
    import boto3

    with reserved() as port:
        process = subprocess.Popen(
            [str(environment() / "bin/moto_server"), "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await_port(port, process)
            url = f"http://127.0.0.1:{port}"
            boto3.client("s3", endpoint_url=url).create_bucket(Bucket=name)
            yield url
        finally:
            end(process)
