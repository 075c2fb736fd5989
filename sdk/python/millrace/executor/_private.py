"""A host that a program starts for itself."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
from pathlib import Path

from millrace import _open
from millrace._records import _native

#: How long a private host has to start.
_START_S = 60.0


class PrivateHost:
    """A host that ends with this program, and its namespace in a directory that is removed with it."""

    def __init__(self) -> None:
        scripts = sysconfig.get_path("scripts")
        program = os.environ.get("MILLRACE_BIN") or shutil.which("millrace") or shutil.which("millrace", path=scripts)
        if program is None:
            told = f"the program `millrace` was not found in PATH, in {scripts} or in MILLRACE_BIN"
            raise _native.error("MR6105", told)
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-")
        self.directory = os.path.join(self._folder.name, "local")
        _open.create(self.directory, durability="memory").close()
        command = [program, "--json", "serve", "--listen", "none", "-n", self.directory, "--drain", "1s"]
        said = os.path.join(self._folder.name, "host.log")
        self._ended = threading.Event()
        self._process = self._start(command, said)
        assert self._process.stdout is not None
        started = threading.Timer(_START_S, self._process.kill)
        started.start()
        line = self._process.stdout.readline()
        started.cancel()
        if not line:
            detail = Path(said).read_text(errors="replace").strip()
            self.close()
            raise _native.error("MR5001", f"the private host did not start: {detail[-1000:]}")
        self.address = f"unix:{json.loads(line)['socket']}"
        atexit.register(self.close)

    def _start(self, command: list[str], said: str) -> subprocess.Popen[str]:
        """Starts it in a thread that lasts, because the kernel ends it together with the thread that has started it."""
        started: concurrent.futures.Future[subprocess.Popen[str]] = concurrent.futures.Future()

        def keep() -> None:
            try:
                with open(said, "wb") as log:
                    # In a session of its own: Ctrl-C in a terminal interrupts the program, which then still reaches its host.
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        preexec_fn=_die_with_parent,
                        start_new_session=True,
                    )
            except BaseException as error:
                started.set_exception(error)
                return
            started.set_result(process)
            self._ended.wait()

        threading.Thread(target=keep, name="millrace-private-host", daemon=True).start()
        return started.result()

    def close(self) -> None:
        """Ends it."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._ended.set()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()


def _die_with_parent() -> None:
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
