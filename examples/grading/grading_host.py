"""A namespace of this example and its host, as a client sees them."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from grading_servers import PASSWORD, PATIENCE_S, Failed

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
STEP_MS = 5000
#: The host answers so if the database did not have the answer's causes within 30 seconds.
NOT_WRITTEN = 503


def find_millrace() -> str:
    """The command: $MILLRACE, one built here, or one in PATH."""
    built = [REPOSITORY / "target" / kind / "millrace" for kind in ("release", "debug")]
    found = os.environ.get("MILLRACE") or next((str(path) for path in built if path.exists()), shutil.which("millrace"))
    if not found:
        raise Failed("there is no `millrace` yet: run `make` at the root of the repository, or set MILLRACE to its path")
    return found


def find_go() -> str:
    """Go where functions see it: in their sandbox, they see programs and libraries of the system's directories."""
    for found in (shutil.which("go"), "/usr/local/go/bin/go", "/usr/bin/go"):
        if found and os.access(found, os.X_OK) and Path(found).resolve().is_relative_to("/usr"):
            return found
    raise Failed("Go is not installed below /usr, where functions see it: run scripts/setup.sh test")


def changed(text: str, key: str, value: str) -> str:
    """An application file in which a key has another value, everywhere."""
    text, count = re.subn(rf'^{key} = ".*"$', f"{key} = {json.dumps(value)}", text, flags=re.MULTILINE)
    if not count:
        raise Failed(f"the application file has no key '{key}'")
    return text


@dataclass
class Host:
    """A namespace with an application of this example, whose tables a database has."""

    directory: Path
    application: str
    url: str
    mode: str | None = None
    process: subprocess.Popen | None = None
    connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def create(self) -> None:
        """Makes the namespace from an application file as it stands here, but for the database, the mode, and where Go is."""
        self.directory.mkdir(parents=True)
        text = changed((EXAMPLE / self.application).read_text(), "url", self.url)
        text = changed(text, "code", str(EXAMPLE / "functions"))
        text = changed(text, "mode", self.mode) if self.mode else text
        if "env = { GO = " in text:
            text = text.replace('"/usr/bin/go"', json.dumps(find_go()))
        has_password = self.url.startswith("postgresql:")
        if not has_password:
            text = re.sub(r"^secret = .*\n", "", text, flags=re.MULTILINE)
        (self.directory / "millrace.toml").write_text(text)
        self.call("up")
        if has_password:
            self.call("secret", "set", "main-password", given=PASSWORD)

    def command(self, *args: str) -> list[str]:
        return [find_millrace(), *args]

    def call(self, *args: str, given: str | None = None) -> str:
        done = subprocess.run(self.command(*args), cwd=self.directory, input=given, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"millrace {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def rows(self, *args: str) -> list[dict]:
        return [json.loads(line) for line in self.call("--json", *args).splitlines()]

    def start(self) -> None:
        """Serves; returns when it listens."""
        with (self.directory / "host.log").open("a") as said:
            command = self.command("--json", "serve", "--name", "school", "--listen", "127.0.0.1:0")
            self.process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.PIPE, stderr=said, text=True)
        announced = json.loads(self.process.stdout.readline() or "{}")
        if "addresses" not in announced:
            raise Failed(f"the host did not start:\n{(self.directory / 'host.log').read_text()}")
        port = int("".join(announced["addresses"]).split("/")[2].rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kills the host, like the loss of its process."""
        self.process.kill()
        self.ended()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.ended()

    def ended(self) -> None:
        self.process.communicate()
        self.connection.close()

    def __enter__(self) -> Host:
        self.create()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        self.connection.request(method, f"/v1/namespaces/school/{path}", body)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def asked(self, method: str, path: str, body: str | None = None) -> bytes:
        status, answer = self.ask(method, path, body)
        if status >= 300:
            raise Failed(f"{method} {path}: {status} {answer.decode(errors='replace')}")
        return answer

    def put(self, table: str, key: str, value: object) -> None:
        self.asked("PUT", f"tables/{table}/keys/{quote(key, safe='')}", json.dumps(value))

    def append(self, log: str, value: object) -> None:
        self.asked("POST", f"logs/{log}/records", json.dumps(value))

    def latest(self, log: str) -> int:
        return json.loads(self.asked("GET", f"logs/{log}"))["latest"]

    def newer(self, log: str, above: int) -> bytes:
        """The newest record of a log, as soon as there is one above this number and a client may see it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            status, answer = self.ask("GET", f"logs/{log}/records/latest?above={above}&wait_ms={STEP_MS}")
            if status == 200:
                return answer
            if status not in (204, NOT_WRITTEN):
                raise Failed(f"{log}: {status} {answer.decode(errors='replace')}")
        raise Failed(f"{log} has no record above {above}:\n{self.call('why')}\n{self.call('table', 'lag')}")


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
