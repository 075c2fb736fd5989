"""What the tests of the packages share: packages with the debug build in them, a key, and releases that are signed with it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIGN = ROOT / "scripts/release/sign.py"
# The longest that anything may take before a test fails; generous, because only liveness is meant.
PATIENCE_S = 1200
MACHINE = os.uname().machine
# What install.sh may use, beside the commands that download. Everything is part of a minimal Debian, except openssl, on which
# ca-certificates depends.
TOOLS = ["sh", "uname", "openssl", "sha256sum", "tar", "gzip", "mkdir", "mktemp", "rm", "cp", "mv", "grep", "sed", "sort", "tail"]


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, which must be a success."""
    ended = attempt(*command, **options)
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended


def attempt(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, **options)  # type: ignore[call-overload]


def sign(directory: Path, key: Path, address: str | Path, *more: str, **options: object) -> None:
    run(sys.executable, SIGN, "sign", directory, "--key", key, "--from", str(address), *more, **options)


def refused(*command: str | Path, because: str) -> str:
    """A command that fails, and says why."""
    ended = attempt(*command)
    assert ended.returncode != 0 and because in ended.stderr, f"{command}: {ended.returncode} {ended.stdout}{ended.stderr}"
    return ended.stderr


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program under test, without the symbols that make the packages large."""
    built = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
    assert built.is_file(), f"{built} is not there; build it with `cargo build -p millrace-cli`"
    stripped = tmp_path_factory.mktemp("program") / "millrace"
    run("strip", "-o", stripped, built)
    return stripped


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key that signs releases."""
    path = tmp_path_factory.mktemp("key") / "key.pem"
    run(sys.executable, SIGN, "key", path)
    return path


@pytest.fixture(scope="session")
def packages(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All packages of this machine, as `make dist` makes them, with the program under test in place of the release build."""
    out = tmp_path_factory.mktemp("packages")
    run(sys.executable, ROOT / "scripts/dist.py", "--payload", program, "--out", out)
    yield out
    # Half a gigabyte that nobody needs afterwards.
    shutil.rmtree(out, ignore_errors=True)


def linked(directory: Path, into: Path) -> Path:
    """A directory of packages with files of its own in which packages are links: to change one, remove it first."""
    into.mkdir()
    for path in directory.rglob("*"):
        copy = into / path.relative_to(directory)
        if path.is_dir():
            copy.mkdir()
        elif path.stat().st_size > 1 << 20:
            copy.hardlink_to(path)
        else:
            shutil.copyfile(path, copy)
    return into


def small_release(directory: Path, key: Path, version: str, machine: str = MACHINE, prints: str | None = None) -> Path:
    """A signed release whose program is a script that prints a version. A real one has more files and the same names."""
    directory.mkdir(parents=True)
    name = f"millrace-{version}-linux-{machine}"
    files = {
        "bin/millrace": f"#!/bin/sh\necho millrace {prints or version}\n".encode(),
        "share/doc/millrace/README.md": version.encode(),
        "LICENSE": b"",
        "THIRD-PARTY-NOTICES.txt": b"",
    }
    with tarfile.open(directory / f"{name}.tar.gz", "w:gz") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(data), 0o755 if path.startswith("bin/") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    sign(directory, key, directory)
    return directory


@dataclass
class Home:
    """A user's directory, and the commands that this user has."""

    place: Path
    tools: Path
    variables: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str) -> None:
        found = shutil.which(name)
        assert found, f"{name} is installed"
        (self.tools / name).symlink_to(found)

    def fake(self, name: str, script: str) -> None:
        (self.tools / name).unlink(missing_ok=True)
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.place), "PATH": str(self.tools), "LANG": "C.UTF-8", **self.variables}

    def install(self, script: Path, source: str | Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs an install.sh, which takes the packages from an address, or from where it was signed for."""
        more = {} if source is None else {"MILLRACE_FROM": str(source)}
        return attempt(self.tools / "sh", script, env={**self.environment(), **more}, cwd=self.place)

    def installs(self, script: Path, source: str | Path | None = None) -> str:
        done = self.install(script, source)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refuses(self, because: str, script: Path, source: str | Path | None = None) -> str:
        """Nothing in the home may change when an installation is refused."""
        before = self.files()
        done = self.install(script, source)
        assert done.returncode != 0 and because in done.stderr, f"{done.returncode}: {done.stdout}{done.stderr}"
        assert self.files() == before
        return done.stderr

    @property
    def millrace(self) -> Path:
        return self.place / ".local/bin/millrace"

    def version(self) -> str:
        return run(self.millrace, "version").stdout.strip().removeprefix("millrace ")

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.place)): path.read_bytes() for path in self.place.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The home of a user who has curl."""
    made = Home(tmp_path / "home", tmp_path / "tools")
    made.place.mkdir()
    made.tools.mkdir()
    for name in [*TOOLS, "curl"]:
        made.tool(name)
    return made


Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


@contextmanager
def served(directory: Path, answer: Answer | None = None) -> Iterator[tuple[str, list[str]]]:
    """A web server on this machine for a directory: its address, and the paths that it was asked for. `answer` sends the packages
    in place of the usual way."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path = directory / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()
            if answer and path.suffix == ".gz":
                answer(self, data)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()
