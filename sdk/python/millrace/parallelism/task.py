"""The function that the benchmark invokes, the same on every platform. It needs only Python's standard library.

It says when it began and ended by its machine's clock, and in which instance it ran. An instance is named by a UUID that is made when this
file is loaded, and counts its invocations: the first one of an instance is a cold start.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import uuid
from typing import Any

#: The side of the matrices that the task M multiplies.
SIDE = 64


def _instance() -> tuple[str, int]:
    """This instance, and the number of its invocation that begins now.

    They are kept in `sys`, since some platforms load this file more than once in a process. Threads may count at the same time.
    """
    state: dict[str, Any] = sys.__dict__.setdefault("_millrace_parallelism", {"lock": threading.Lock()})
    with state["lock"]:
        if state.get("pid") != os.getpid():
            # A process that was forked from another instance is an instance of its own.
            state.update(pid=os.getpid(), instance=str(uuid.uuid4()), count=0)
        state["count"] += 1
        return state["instance"], state["count"]


def _read(path: str) -> str:
    """A file of the system, or nothing where it is hidden."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _about() -> dict[str, Any]:
    """The machine, as far as the platform shows it."""
    uptime = _read("/proc/uptime").split()
    models = [line.partition(":")[2].strip() for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE") or os.environ.get("FUNCTION_MEMORY_MB")
    limit = _read("/sys/fs/cgroup/memory.max") or _read("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    if not memory and limit.isdigit() and int(limit) < 1 << 50:
        memory = str(int(limit) >> 20)
    return {
        "boot": _read("/proc/sys/kernel/random/boot_id") or None,
        "uptime_s": float(uptime[0]) if uptime else None,
        "hostname": os.uname().nodename,
        "cpu": "%s × %s" % (os.cpu_count(), models[0] if models else os.uname().machine),
        "memory_mib": int(memory) if memory and memory.isdigit() and int(memory) > 0 else None,
    }


def pi(iterations: int) -> float:
    """π by the method of Monte Carlo."""
    inside, draw = 0, random.random
    for _ in range(iterations):
        x, y = draw(), draw()
        if x * x + y * y < 1.0:
            inside += 1
    return 4.0 * inside / max(iterations, 1)


def matrices(iterations: int) -> float:
    """Products of matrices; one element of the last, so that nothing can be left out."""
    side = range(SIDE)
    left, right = ([[random.random() for _ in side] for _ in side] for _ in range(2))
    product = left
    for _ in range(iterations):
        columns = list(zip(*right))
        product = [[sum(map(float.__mul__, row, column)) for column in columns] for row in left]
    return product[0][0]


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Works, and says when and where. `request` has `task` (S, C or M), `iterations` and `seconds`."""
    start_ms = time.time() * 1000
    instance, nth = _instance()
    about = _about()
    task = request.get("task", "S")
    value = None
    if task == "S":
        time.sleep(float(request.get("seconds", 1)))
    else:
        value = {"C": pi, "M": matrices}[task](int(request["iterations"]))
    answer: dict[str, Any] = {"id": request.get("id"), "start_ms": start_ms, "instance": instance, "nth": nth, "value": value}
    answer.update(about)
    answer["end_ms"] = time.time() * 1000
    return answer


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda. An asynchronous invocation names a bucket for its result."""
    answer = run(event)
    answer["request"] = getattr(context, "aws_request_id", None)
    if event.get("bucket"):
        import boto3

        boto3.client("s3").put_object(Bucket=event["bucket"], Key=event["key"], Body=json.dumps(answer).encode())
    return answer


def main(request: Any) -> Any:
    """OpenWhisk, which gives a dict; Azure Functions and Google Cloud Functions, which give an HTTP request."""
    if isinstance(request, dict):
        answer = run(request)
        answer["request"] = os.environ.get("__OW_ACTIVATION_ID")
        return answer
    return json.dumps(run(request.get_json()))


def on_record(record: Any, ctx: Any) -> None:
    """A function of Millrace: it runs for each record of one log, and appends its answer to another."""
    request = json.loads(record.data)
    ctx.append(request["answer_to"], json.dumps(run(request)).encode())


def lines() -> None:
    """A process that gets requests on standard input and answers on standard output, one per line. An empty line is answered by one."""
    for line in sys.stdin:
        if not line.strip():
            print(flush=True)
            continue
        try:
            answer = run(json.loads(line))
        except Exception as error:
            answer = {"error": "%s: %s" % (type(error).__name__, error)}
        print(json.dumps(answer), flush=True)


def serve(port: int, address: str = "0.0.0.0") -> None:
    """An HTTP server for containers (Knative, Cloud Run): a request is answered by POST."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            try:
                status, answer = 200, run(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))))
            except Exception as error:
                status, answer = 500, {"error": "%s: %s" % (type(error).__name__, error)}
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 1024

    server = Server((address, port), Handler)
    print("listening on port %d" % server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        address, _, port = (sys.argv[2] if len(sys.argv) > 2 else os.environ.get("PORT", "8080")).rpartition(":")
        serve(int(port), address or "0.0.0.0")
    else:
        lines()
