"""A host that a program starts for itself."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Optional

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
        self._process: Optional[subprocess.Popen[str]] = None
        self._pid, self._ended = os.getpid(), threading.Event()
        _sweep()
        self._folder, self._owner = _folder()
        atexit.register(self.close)
        try:
            self._begin(program)
        except BaseException:
            self.close()
            raise

    def _begin(self, program: str) -> None:
        self.directory = os.path.join(self._folder, "local")
        _open.create(self.directory, durability="memory").close()
        command = [program, "--json", "serve", "--listen", "none", "-n", self.directory, "--drain", "1s"]
        said = os.path.join(self._folder, "host.log")
        self._process = self._start(command, said)
        assert self._process.stdout is not None
        started = threading.Timer(_START_S, self._process.kill)
        started.daemon = True
        started.start()
        try:
            line = self._process.stdout.readline()
        finally:
            started.cancel()
        if not line:
            detail = Path(said).read_text(errors="replace").strip()
            raise _native.error("MR5001", f"the private host did not start: {detail[-1000:]}")
        self.address = f"unix:{json.loads(line)['socket']}"

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
                        preexec_fn=lambda: _die_with(self._pid),
                        pass_fds=[self._owner],
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
        if os.getpid() != self._pid or self._ended.is_set():
            # In a child that was forked, it is the host of the parent.
            return
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ended.set()
        if process is not None and process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._owner)
        atexit.unregister(self.close)


def _folder() -> tuple[str, int]:
    """A new directory, and a file in it that is locked until the program and its host have ended."""
    folder = tempfile.mkdtemp(prefix="millrace-")
    new = os.path.join(folder, "new")
    owner = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(owner, fcntl.LOCK_EX)
    os.rename(new, os.path.join(folder, "owner"))
    return folder, owner


def _sweep() -> None:
    """Removes the directories of programs that were killed."""
    for found in Path(tempfile.gettempdir()).glob("millrace-*/owner"):
        with contextlib.suppress(OSError), open(found, "rb") as owner:
            if os.fstat(owner.fileno()).st_uid != os.getuid():
                continue
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found.parent, ignore_errors=True)


def _die_with(parent: int) -> None:
    """In the child: the kernel ends it together with the thread that has started it, if that has not ended already."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
