"""The host that a program starts for itself: how it starts, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S

import millrace


def test_it_does_not_end_with_the_thread_that_has_started_it(binary: Path) -> None:
    os.environ["MILLRACE_BIN"] = str(binary)
    opened: list[millrace.Connection] = []
    thread = threading.Thread(target=lambda: opened.append(millrace.connect()))
    thread.start()
    thread.join(PATIENCE_S)
    with opened[0] as farm:
        hits = farm.AtomicInt("hits")
        # The kernel would have signalled it by now, and it would have stopped within its drain time.
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            hits.add()
            time.sleep(0.1)


_WAITING = """
import millrace
with millrace.connect() as farm:
    print(farm.address if hasattr(farm, "address") else "", "ready", flush=True)
    farm.Semaphore("none", 0).acquire()
"""


def test_ctrl_c_reaches_the_program_before_its_host(binary: Path) -> None:
    """A terminal sends SIGINT to the whole process group."""
    environment = {**os.environ, "MILLRACE_BIN": str(binary)}
    command = [sys.executable, "-c", _WAITING]
    program = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert program.stdout is not None
    assert "ready" in program.stdout.readline()
    time.sleep(0.5)
    begun = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)
    _, told = program.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in told and "MR6121" not in told, told
    assert time.monotonic() - begun < 30, "it used to wait a minute for a host that had stopped"


def test_the_program_is_found_beside_the_interpreter_and_cloudpickle_is_named_if_it_is_missing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cloudpickle'] = None\n"
        "import sysconfig, os; os.environ['PATH'] = '/nonexistent'; os.environ.pop('MILLRACE_BIN', None)\n"
        f"sysconfig.get_path = lambda name: {str(tmp_path)!r}\n"
        "import millrace\n"
        "with millrace.connect() as farm:\n"
        "    print(farm.AtomicInt('hits').add())\n"
        "    try: farm.Executor()\n"
        "    except millrace.Missing as error: print(error.code, error.remedy)\n"
    )
    (tmp_path / "millrace").symlink_to(os.environ["MILLRACE_BIN"])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout.splitlines() == ["1", "MR6105 Install it with pip, as the message says."], ran


def test_errors_have_cause_and_remedy(binary: Path) -> None:
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as farm, pytest.raises(millrace.NotFound, match="MR7114") as missing:
        farm.Executor(pool="nope")
    notes = getattr(missing.value, "__notes__", [missing.value.cause, missing.value.remedy])
    assert missing.value.cause and missing.value.remedy and notes == [missing.value.cause, missing.value.remedy]
