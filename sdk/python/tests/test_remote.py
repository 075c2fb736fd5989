"""The same namespace through a host: every method answers as it does on the files."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from conftest import Host, patiently

import millrace
from millrace import codecs

Start = Callable[..., Host]


@pytest.fixture
def remote(ns: millrace.Namespace, host: Start) -> Iterator[millrace.Namespace]:
    with millrace.open(host(ns).address) as namespace:
        yield namespace


def test_records_are_the_same_on_both_ways(ns: millrace.Namespace, remote: millrace.Namespace) -> None:
    assert (remote.id, remote.durability, remote.closed) == (ns.id, "memory", False)
    assert remote.append("raw", {"a": 1}) == 1 and ns.append("raw", b"\xff") == 2 and remote.append("raw", "x") == 3
    for seqno in (1, 2, 3, None):
        assert remote.get("raw", seqno) == ns.get("raw", seqno)
    assert remote.latest("raw") == 3 == ns.latest("raw")
    assert remote.bounds("raw") == ns.bounds("raw")
    assert remote.logs() == ns.logs()
    assert remote.functions() == ns.functions() and remote.runs() == ns.runs()
    assert remote.why() == ns.why() and "no function is bound" in str(remote.why("raw"))
    assert list(remote.range("raw", 2)) == list(ns.range("raw", 2))


HISTORY = "history is {}; it must be 1 to 268435456, or None for all records"
TOKEN = "the token of the fence is {}; it must be 1 to 18446744073709551615"
SEQNO = "{} is not a sequence number"


@pytest.mark.parametrize(
    ("ask", "code", "rule", "numbers"),
    [
        (lambda ns, n: ns.create_log("new", n), "MR2107", HISTORY, (-1, 0, 1 << 62, 1 << 64)),
        (lambda ns, n: ns.set_history("raw", n), "MR2107", HISTORY, (-1, 0, 1 << 70)),
        (lambda ns, n: ns.create_topic("new", n), "MR2107", HISTORY, (-1, 0, 1 << 64)),
        (lambda ns, n: ns.append("raw", b"", fence=("lock", n)), "MR7128", TOKEN, (-1, 0, 1 << 64)),
        (lambda ns, n: ns.append_many([("raw", b"")], fence=("lock", n)), "MR7128", TOKEN, (-1, 0, 1 << 64)),
        (lambda ns, n: ns.get("raw", n), "MR1003", SEQNO, (-1, 0, 1 << 64)),
        (lambda ns, n: ns.range("raw", n), "MR1003", SEQNO, (-1, 0, 1 << 64)),
        (lambda ns, n: ns.amend("raw", {n: b""}), "MR1003", SEQNO, (-1, 0, 1 << 64, 1.5, float("inf"), float("nan"))),
        (lambda ns, n: ns.repair({"raw": {n: b""}}), "MR1003", "'{}' is not a sequence number", ("ten",)),
        (lambda ns, n: ns.tail("raw", 1, incarnation=n), "MR1006", "incarnation is {}; it must be 0 to 4294967295", (-1, 1 << 32)),
        (lambda ns, n: ns.tail("raw", 1).batch(n), "MR1006", "most is {}; it must be 0 to 18446744073709551615", (-1, 1 << 64)),
        (lambda ns, n: millrace.connect(ns.address, lease=n), "MR1006", "lease is {}; it must be 0 to 4294967 seconds", (-1, 1 << 32)),
        (lambda ns, n: millrace.Executor(ns.address, lost_after=n), "MR1006", "lost_after is {}; it must be 0 to 4294967 seconds", (-1, 1 << 32)),
    ],
)
def test_numbers_out_of_range_are_refused_with_the_rule(
    ns: millrace.Namespace,
    remote: millrace.Namespace,
    ask: Callable[[millrace.Namespace, object], object],
    code: str,
    rule: str,
    numbers: tuple[object, ...],
) -> None:
    for namespace in (ns, remote):
        for number in numbers:
            with pytest.raises(millrace.Invalid) as refused:
                ask(namespace, number)
            assert str(refused.value) == f"{code}: {rule.format(number)}"
    assert ns.latest("raw") == 0 and [log.name for log in ns.logs() if not log.name.startswith("_")] == ["raw"]


def test_batches_are_larger_than_a_page(remote: millrace.Namespace) -> None:
    remote.create_log("many", history=100_000)
    assert remote.append_many(("many", i) for i in range(5000)) == list(range(1, 5001))
    assert [record.json() for record in remote.range("many")] == list(range(5000))
    assert [record.seqno for record in remote.range("many", 4000, 4003)] == [4000, 4001, 4002]
    big = [("many", bytes([i]) * 200_000) for i in range(5)]
    assert remote.append_many(big) == list(range(5001, 5006))
    assert remote.get("many").data == big[-1][1]
    with pytest.raises(millrace.NotFound) as refused:
        remote.append_many([*[("many", b"")] * 1024, ("missing", b"")])
    assert getattr(refused.value, "appended") == list(range(5006, 6030))


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda ns: ns.get("missing"), "MR2101"),
        (lambda ns: ns.append("missing", b""), "MR2101"),
        (lambda ns: ns.bounds("missing"), "MR2101"),
        (lambda ns: ns.get("raw"), "MR2105"),
        (lambda ns: ns.get("raw", 7), "MR2105"),
        (lambda ns: ns.get("raw", 0), "MR1003"),
        (lambda ns: ns.create_log("../x"), "MR1001"),
        (lambda ns: ns.create_log("raw", 7), "MR2102"),
        (lambda ns: ns.append("raw", b"", function="missing"), "MR3001"),
        (lambda ns: ns.append("raw", object()), "MR6102"),
        (lambda ns: ns.append("raw", b"", durability="q"), "MR1006"),
        (lambda ns: ns.run("1-1-1"), "MR3007"),
        (lambda ns: ns.why("missing"), None),
        (lambda ns: list(ns.tail("missing", 1, timeout=0)), "MR2101"),
    ],
)
def test_errors_are_the_same_on_both_ways(
    ns: millrace.Namespace, remote: millrace.Namespace, ask: Callable[[millrace.Namespace], object], code: str
) -> None:
    raised = []
    for place in (ns, remote):
        with pytest.raises(millrace.Error) as error:
            ask(place)
        raised.append((type(error.value), error.value.code))
    assert raised[0] == raised[1] and code in (None, raised[0][1])


def test_a_tail_gets_what_comes_and_ends_at_its_timeout(ns: millrace.Namespace, remote: millrace.Namespace) -> None:
    ns.append("raw", b"0")
    tail = remote.tail("raw", timeout=120)
    writer = threading.Thread(target=lambda: [ns.append("raw", i) for i in range(1, 2000)])
    writer.start()
    assert [record.json() for record in islice(tail, 1999)] == list(range(1, 2000))
    writer.join()
    assert tail.next == 2001
    patiently(
        [1998, 1999, 2000], lambda timeout: [record.seqno for record in remote.tail("raw", 1998, timeout=timeout)]
    )


def test_a_closed_tail_ends(remote: millrace.Namespace) -> None:
    tail = remote.tail("raw")
    got: list[millrace.StoredRecord] = []
    reader = threading.Thread(target=lambda: got.extend(tail), daemon=True)
    reader.start()
    time.sleep(0.1)
    tail.close()
    reader.join(120)
    assert not reader.is_alive() and got == []


def test_a_log_of_values(remote: millrace.Namespace) -> None:
    log = remote.log("raw", codec=codecs.Json())
    log.append_many([1, {"b": 2}, [3]])
    assert (len(log), log[2], log[-1], log[1:3]) == (3, {"b": 2}, [3], [1, {"b": 2}])
    assert "<td>raw</td><td>3</td>" in remote._repr_html_() and "[3]" in log._repr_html_()
    assert len(log.to_pandas()) == 3
    assert remote.time_field("raw") is None
    remote.create_log("late", time="/at")
    remote.log("late", codec=codecs.Json()).append({"at": "2013-01-01T00:00:00Z"})
    assert remote.time_field("late") == ("/at", None)
    assert [time.year for time in remote.log("late", codec=codecs.Json()).to_pandas()["time"]] == [2013]
    remote.set_time("late", "/t", unit="us")
    assert remote.time_field("late") == ("/t", "us")
    remote.set_time("late", None)
    assert remote.time_field("late") is None
    remote.remove_log("raw")
    with pytest.raises(millrace.NotFound):
        len(log)


def test_keys_make_appends_safe_to_repeat(remote: millrace.Namespace) -> None:
    assert [remote.append("raw", b"x", key="k") for _ in range(3)] == [1, 1, 1]


def test_the_socket_in_the_directory(ns: millrace.Namespace, host: Start) -> None:
    with millrace.open(host(ns, "none").socket) as through:
        assert through.append("raw", b"x") == 1 and through.id == ns.id


def test_what_needs_the_files_says_so(remote: millrace.Namespace) -> None:
    with pytest.raises(millrace.Invalid, match="MR6107"):
        remote.deploy(lambda record, ctx: None)
    with pytest.raises(millrace.Invalid, match="MR6107"):
        remote.remove_function("f")
    remote.wait_idle(1)


def test_a_host_that_is_not_there(ns: millrace.Namespace, host: Start) -> None:
    running = host(ns)
    remote = millrace.open(running.address)
    remote.append("raw", b"x")
    with pytest.raises(millrace.NotFound, match="MR6007"):
        millrace.open(running.address.replace("/farm", "/other"))
    running.process.kill()
    running.process.wait()
    with pytest.raises(millrace.Unavailable) as refused:
        remote.append("raw", b"x")
    assert isinstance(refused.value, ConnectionError) and refused.value.remedy
    with pytest.raises(millrace.Unavailable, match="MR6121"):
        millrace.open(running.address)
    with pytest.raises(millrace.Invalid, match="MR6001"):
        millrace.open("mr://nowhere")
    remote.close()
    with pytest.raises(millrace.Invalid, match="MR6106"):
        remote.latest("raw")


def test_certificate_authorities_are_an_argument(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        address = f"mr://127.0.0.2:{listener.getsockname()[1]}/farm"
        with pytest.raises(millrace.Invalid, match="MR6195"):
            millrace.open(address, ca=tmp_path / "none.pem")
        with pytest.raises(millrace.Invalid, match="MR6195"):
            millrace.connect(address, ca=tmp_path / "none.pem")


WAITS = {
    "tail": "next(ns.tail('raw'))",
    "get": "ns.get('raw', 1, wait=60)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_every_wait(ns: millrace.Namespace, host: Start, wait: str) -> None:
    program = f"""
import millrace, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background inherits that it is ignored
ns = millrace.open({host(ns).address!r})
print("ready", flush=True)
{WAITS[wait]}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    assert process.poll() is None, "it must wait"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors and process.returncode != 0, errors
