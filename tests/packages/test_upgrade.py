"""Upgrades: a namespace that an earlier version left is found as it was and goes on, and a version that is too old leaves it alone.

`tests/golden/release-VERSION.tar.gz` is what `tests/golden/release.sh` made with the program of each release. With the program of the
release before, namespaces are also made now and opened by it again, and its hosts form a cluster with hosts of this version. `make
test-all` builds it (`scripts/release/previous.sh`); MILLRACE_PREVIOUS names another program.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, ROOT, attempt, run

GOLDEN = ROOT / "tests/golden"
RELEASES = sorted(GOLDEN.glob("release-*.tar.gz"))
MILLRACE = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
BUILT = ROOT / "target/previous/target/release/millrace"
PREVIOUS = os.environ.get("MILLRACE_PREVIOUS") or (str(BUILT) if BUILT.is_file() else None)
previous = pytest.mark.skipif(not PREVIOUS, reason="there is no program of an earlier release")


class Place:
    """A namespace, and the program that uses it."""

    def __init__(self, directory: Path, program: Path = MILLRACE) -> None:
        self.directory, self.program = directory, program
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        self.environment = {**kept, "MILLRACE_LISTEN": "127.0.0.1:0", "XDG_CONFIG_HOME": str(directory.parent / "config")}

    def do(self, *words: str | Path, stdin: str = "") -> str:
        return run(self.program, *words, cwd=self.directory, env=self.environment, input=stdin).stdout

    def ask(self, *words: str | Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.do("--json", *words).splitlines()]

    def records(self, log: str) -> list[str]:
        return [record["data"] for record in self.ask("log", "get", log, "--all")]

    @contextmanager
    def serving(self, *words: str | Path) -> Iterator[str]:
        """A host; the address of its first namespace."""
        command = [str(word) for word in [self.program, "serve", *words]]
        host = subprocess.Popen(command, cwd=self.directory, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert host.stdout
            said = ""
            while not re.search(r"http://\S+", said):
                line = host.stdout.readline()
                assert line, said
                said += line
            yield re.findall(r"^  (mr://\S+)$", said, re.M)[0]
        finally:
            host.send_signal(signal.SIGTERM)
            assert host.wait(PATIENCE_S) == 0

    def is_sound(self) -> None:
        (checked,) = self.ask("namespace", "check")
        assert checked["sound"] and not checked["lost"] and not checked["faults"], checked

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.directory.rglob("*") if path.is_file()}


def unpack(archive: Path, into: Path) -> Place:
    place = Place(into / "farm")
    place.directory.mkdir(parents=True)
    run("tar", "-xzf", archive, "-C", place.directory)
    return place


def eventually(holds: Any) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def goes_on(place: Place, expected: dict[str, Any]) -> None:
    """What `release.sh` put into a namespace is there, and what was pending is done."""
    place.is_sound()
    found = json.loads(run(sys.executable, GOLDEN / "describe.py", place.program, place.directory).stdout)
    for part, value in expected.items():
        assert found[part] == value, part
    assert place.records("raw")[:3] == ["1", "100", "3"], "a repair stays applied"
    assert [repair["phase"] for repair in place.ask("repair", "ls")] == ["applied", "ready"]
    (relay,) = place.ask("relay", "ls")
    (outbox,) = place.ask("outbox", "ls")
    cloud = Place(place.directory.parent / "cloud", place.program)
    cloud.directory.mkdir()
    cloud.do("init", "--bare")
    cloud.do("log", "create", "kept")
    cloud.do("log", "create", "in")
    with place.serving(f"farm={place.directory}", f"cloud={cloud.directory}") as address:
        place.do("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")
        assert place.records("slow-out") == ["slow 1", "slow 2", "slow 3"]
        assert place.do("log", "append", "raw", "11", "--key", "eleven").strip() == "11", "a key is remembered"
        # What waited for another namespace arrives once that has an address.
        to = address.removesuffix("/farm") + "/cloud"
        place.do("relay", "set", relay["name"], "--to", to)
        place.do("outbox", "set", outbox["name"], "--to", to)
        eventually(lambda: cloud.records("kept")[4:] and cloud.records("in")[2:])
        assert cloud.records("kept") == [str(number) for number in range(1, 6)]
        assert cloud.records("in") == [f"message {number}" for number in range(1, 4)]
        place.do("-n", address, "topic", "publish", "news", "news 4")
        published = place.ask("-n", address, "topic", "range", "news")
        assert [record["data"] for record in published] == [f"news {number}" for number in range(1, 5)]
        # Whether it can be applied depends on its age.
        place.do("repair", "abandon", str(place.ask("repair", "ls")[1]["repair"]))
        assert place.records("raw")[:3] == ["1", "100", "3"]
        place.do("log", "append", "raw", "12")
        place.do("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")
        assert place.records("double")[-1] == "24"
        place.do("cap", "rotate")
    place.is_sound()
    cloud.is_sound()


def expected(archive: Path) -> dict[str, Any]:
    return json.loads(Path(str(archive).removesuffix(".tar.gz") + ".json").read_text())


@pytest.mark.parametrize("archive", RELEASES, ids=lambda path: path.name)
def test_the_namespace_of_a_release_goes_on(archive: Path, tmp_path: Path) -> None:
    goes_on(unpack(archive, tmp_path), expected(archive))


COMMANDS = [["log", "ls"], ["log", "append", "raw", "1"], ["serve"], ["namespace", "check"], ["run", "retry", "--function", "bill"],
            ["namespace", "backup", "copy"], ["namespace", "set", "--retain-bytes", "1GiB"]]


def refuses(place: Place) -> None:
    """No command of a program that is too old opens the namespace or changes a file of it."""
    before = place.files()
    for command in COMMANDS:
        ended = attempt(place.program, *command, cwd=place.directory, env=place.environment)
        assert ended.returncode == 1 and "MR2002" in ended.stderr, (command, ended.stdout, ended.stderr)
        assert place.files() == before, command


def test_a_program_that_is_too_old_changes_nothing(tmp_path: Path) -> None:
    place = unpack(RELEASES[-1], tmp_path)
    manifest = place.directory / ".millrace/manifest"
    text = manifest.read_text()
    number = int(text.split()[1])
    manifest.write_text(text.replace(f"millrace-manifest {number} ", f"millrace-manifest {number + 1} ", 1))
    refuses(place)
    # The program that knows the format goes on with it.
    manifest.write_text(text)
    place.is_sound()


@previous
def test_a_namespace_that_the_previous_program_leaves_goes_on_and_back(tmp_path: Path) -> None:
    assert PREVIOUS
    archive = tmp_path / "left.tar.gz"
    run(GOLDEN / "release.sh", PREVIOUS, archive)
    place = unpack(archive, tmp_path)
    goes_on(place, expected(archive))
    # The earlier program reads what this one wrote, or leaves it alone.
    before = place.records("raw")
    earlier = Place(place.directory, Path(PREVIOUS))
    if attempt(PREVIOUS, "log", "ls", cwd=place.directory, env=place.environment).returncode == 0:
        earlier.is_sound()
        assert earlier.records("raw") == before
        with earlier.serving(place.directory):
            earlier.do("log", "append", "raw", "13")
            earlier.do("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")
        assert place.records("double")[-1] == "26"
    else:
        refuses(earlier)
    place.is_sound()


@previous
def test_hosts_of_two_versions_form_a_cluster_and_are_upgraded_in_turn(tmp_path: Path) -> None:
    assert PREVIOUS
    places = [Place(tmp_path / f"{name}/mill", Path(PREVIOUS)) for name in "abc"]
    for place in places:
        place.directory.mkdir(parents=True)
        place.do("init", "--bare")
    secret = tmp_path / "secret"
    places[0].do("cluster", "init")
    places[0].do("cluster", "secret", "--out", secret)
    published = 0

    def publish_and_read(addresses: list[str]) -> None:
        nonlocal published
        for address in addresses:
            published += 1
            places[0].do("-n", address, "topic", "publish", "news", f"news {published}")
        for place, address in zip(places, addresses, strict=True):
            found = [record["data"] for record in place.ask("-n", address, "topic", "range", "news")]
            assert found == [f"news {number}" for number in range(1, published + 1)]

    # Each round, one more host has this version; a host keeps its port.
    ports: dict[int, str] = {}
    for upgraded in range(4):
        for place in places[:upgraded]:
            place.program = MILLRACE
        with places[0].serving("--listen", f"127.0.0.1:{ports.get(0, 0)}") as first:
            join = ["--join", first, "--cluster-secret", secret]
            with places[1].serving("--listen", f"127.0.0.1:{ports.get(1, 0)}", *join) as second:
                with places[2].serving("--listen", f"127.0.0.1:{ports.get(2, 0)}", *join) as third:
                    addresses = [first, second, third]
                    if not ports:
                        ports = {host: re.search(r":(\d+)/", address)[1] for host, address in enumerate(addresses)}  # type: ignore[index]
                        eventually(lambda: len(places[0].ask("-n", first, "cluster", "ls")[0]["hosts"]) == 3)
                        places[0].do("-n", first, "topic", "create", "news")
                    publish_and_read(addresses)
    for place in places:
        place.is_sound()
    shutil.rmtree(tmp_path / "config", ignore_errors=True)
