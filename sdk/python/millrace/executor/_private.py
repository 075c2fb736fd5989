"""A host that a program starts for itself."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
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
        program = os.environ.get("MILLRACE_BIN") or shutil.which("millrace")
        if program is None:
            raise _native.error("MR6105", "the program `millrace` was not found in PATH or in MILLRACE_BIN")
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-")
        self.directory = os.path.join(self._folder.name, "local")
        _open.create(self.directory, durability="memory").close()
        command = [program, "--json", "serve", "--listen", "none", "-n", self.directory, "--drain", "1s"]
        said = os.path.join(self._folder.name, "host.log")
        with open(said, "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=_die_with_parent
            )
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
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()


def _die_with_parent() -> None:
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
