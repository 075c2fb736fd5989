"""What the tests of the dashboard share: a real host with functions and a browser. The pages come from the program under test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Optional

import pytest
import requests
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
# The longest that anything may take before a test fails; generous, because only liveness is meant.
PATIENCE_S = 120
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
# Whoever looks at the screens finds them here.
SCREENSHOTS = ROOT / "target/dashboard"

# Without them, the browser calls hosts of its maker at every start.
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]

APPLICATION = """
[namespace]
segment_size = "64MiB"
durability = "memory"
[logs."raw/kitchen"]
[logs."raw/cellar"]
[logs."mean/kitchen"]
[logs.alerts]
[logs.hostile]
[functions.mean]
runtime = "oneshot"
code = "functions.sh"
command = ["./functions.sh", "mean"]
on = ["raw/kitchen"]
retries = 0
[functions.watch]
runtime = "oneshot"
code = "functions.sh"
command = ["./functions.sh", "watch"]
on = ["mean/kitchen"]
retries = 0
"""
# `mean` repeats the value; `watch` warns from 30 degrees on, and fails at 40.
FUNCTIONS = r"""#!/bin/sh
record=$(cat)
celsius=$(printf '%s' "$record" | sed 's/[^0-9]*\([0-9]*\).*/\1/')
case $1 in
mean) printf 'mean/kitchen\t{"celsius": %s}\n' "$celsius" >&"$MILLRACE_APPEND_FD" ;;
watch)
    [ "$celsius" -lt 40 ] || { echo "the pager <b>refused</b> $celsius" >&2; exit 1; }
    [ "$celsius" -lt 30 ] || printf 'alerts\t{"celsius": %s}\n' "$celsius" >&"$MILLRACE_APPEND_FD"
    ;;
esac
"""


class Host:
    """A running host and its namespace `farm`."""

    @classmethod
    @contextmanager
    def running(cls, place: Path, *before: str) -> Iterator[Host]:
        """A host that is stopped in the end, after this command."""
        host = cls(place, *before)
        try:
            yield host
        finally:
            host.stop()

    def __init__(self, place: Path, *before: str) -> None:
        self.place = place = place / "farm"
        place.mkdir()
        self.binary = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
        assert self.binary.is_file(), f"{self.binary} is not there; build it with `cargo build -p millrace-cli`"
        (place / "millrace.toml").write_text(APPLICATION)
        (place / "functions.sh").write_text(FUNCTIONS)
        (place / "functions.sh").chmod(0o755)
        self.run("up")
        if before:
            self.run(*before)
        self.process: Optional[subprocess.Popen[str]] = None
        self.start()
        page = requests.get(f"{self.url}/ui/", timeout=PATIENCE_S).text
        assert "/ui/@/main." in page, "the program was built without the dashboard: run `make web` and build it again"

    def run(self, *args: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        done = subprocess.run([self.binary, *args], cwd=self.place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, listen: str = "127.0.0.1:0", *more: str) -> None:
        command = [str(self.binary), "serve", "--listen", listen, *more]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        self.process = subprocess.Popen(command, cwd=self.place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            # One that listens beyond loopback speaks TLS to others, and is reached in clear from here.
            if found := re.search(r"https?://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)", line):
                self.url = f"http://127.0.0.1:{found[1]}"
                self.ns = f"{self.url}/v1/namespaces/farm"
                return
        raise AssertionError(f"the host did not say where it listens:\n{said}")

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def append(self, log: str, data: bytes | dict[str, Any]) -> int:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        answer = requests.post(f"{self.ns}/logs/{log}/records", data=body, timeout=PATIENCE_S)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["seqno"])

    def get(self, path: str) -> Any:
        answer = requests.get(f"{self.ns}/{path}", timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def idle(self) -> None:
        self.run("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that has something on each screen. Tests append to it, and change nothing that is there."""
    running = Host(tmp_path_factory.mktemp("farm"))
    for celsius in [18, 21, 24, 33, 41, 22]:
        running.append("raw/kitchen", {"celsius": celsius, "wet": celsius * 2})
    running.append("raw/cellar", b"12.5")
    running.idle()
    yield running
    running.stop()


@pytest.fixture
def own_host(tmp_path: Path) -> Iterator[Host]:
    """A host that a test may change and stop."""
    running = Host(tmp_path)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Debian's Chromium: nothing is downloaded. Root has no sandbox for it.
    arguments = QUIET + (["--no-sandbox"] if os.geteuid() == 0 else [])
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=arguments)
        yield running
        running.close()


Opens = Callable[..., AbstractContextManager[Page]]


@pytest.fixture
def opens(browser: Browser) -> Opens:
    """Opens an address in a page of its own. In the end the console must be empty; an answer of the host that is an error is none."""

    @contextmanager
    def open_(address: str, *, theme: str = "light", phone: bool = False, **options: Any) -> Iterator[Page]:
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce", has_touch=phone, **options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"exception: {error}"))
        page.goto(address)
        try:
            yield page
        finally:
            context.close()
        assert [line for line in said if "Failed to load resource" not in line] == []

    return open_


def faults(page: Page) -> list[str]:
    """What axe finds wrong by WCAG 2.2, levels A and AA."""
    page.evaluate(AXE.read_text())
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    found = page.evaluate("tags => axe.run(document, { runOnly: { type: 'tag', values: tags } })", tags)
    return [f"{rule['id']}: {node['html'][:160]} {node['any'][:1]}" for rule in found["violations"] for node in rule["nodes"]]
