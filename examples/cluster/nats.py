"""Three NATS servers on this machine, which form a cluster and keep topics in JetStream."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

from cluster import Failed, eventually

SERVERS = 3
ANSWER_S = 2


def find_server() -> str:
    # Debian has it where not every user looks.
    found = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/bin")
    if not found:
        raise Failed("there is no `nats-server`: on Debian, apt-get install nats-server")
    return found


def reserve() -> socket.socket:
    """A port that the system gives to nobody else, and that a server, which sets the same option, may bind."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("127.0.0.1", 0))
    return port


class Servers:
    """They run within the context."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.program = directory, find_server()
        self.processes: dict[int, subprocess.Popen] = {}
        self.ports: list[tuple[socket.socket, socket.socket]] = []

    def __enter__(self) -> Servers:
        self.ports = [(reserve(), reserve()) for _ in range(SERVERS)]
        self.directory.mkdir(parents=True)
        for number in range(SERVERS):
            self.start(number)
        eventually("the NATS servers form a cluster", self.are_current)
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self.processes):
            self.kill(number)
        for port in (port for pair in self.ports for port in pair):
            port.close()

    def addresses(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port.getsockname()[1]}" for port, _ in self.ports)

    def start(self, number: int) -> None:
        """Starts a server, which has what it had before."""
        client, route = (port.getsockname()[1] for port in self.ports[number])
        routes = ", ".join(f"nats://127.0.0.1:{port.getsockname()[1]}" for _, port in self.ports)
        config = self.directory / f"{number}.conf"
        config.write_text(
            f"server_name: n{number}\nlisten: 127.0.0.1:{client}\n"
            f'jetstream {{ store_dir: "{self.directory / str(number)}" }}\n'
            f"cluster {{ name: example, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n"
        )
        with open(self.directory / f"{number}.log", "ab") as log:
            self.processes[number] = subprocess.Popen([self.program, "-c", str(config)], stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        """Ends a server like a power failure of its machine, but that the disk has everything."""
        process = self.processes.pop(number)
        process.kill()
        process.wait()

    def are_current(self) -> bool:
        """Whether JetStream answers, and every stream has all its copies."""
        try:
            if "error" in self.ask("$JS.API.INFO"):
                return False
            for name in self.ask("$JS.API.STREAM.NAMES").get("streams") or []:
                copies = self.ask(f"$JS.API.STREAM.INFO.{name}")["cluster"].get("replicas", [])
                if len(copies) < SERVERS - 1 or any(not copy["current"] or copy.get("offline") for copy in copies):
                    return False
        except (OSError, KeyError, ValueError):
            return False
        return True

    def ask(self, subject: str) -> dict:
        """What JetStream answers to a request."""
        address = self.ports[next(iter(self.processes))][0].getsockname()
        with socket.create_connection(address, timeout=ANSWER_S) as line, line.makefile("rwb") as stream:
            stream.write(b'CONNECT {"verbose":false}\r\nSUB answer 1\r\n' + f"PUB {subject} answer 0\r\n\r\n".encode())
            stream.flush()
            while text := stream.readline():
                if text.startswith(b"MSG "):
                    return json.loads(stream.read(int(text.split()[-1])))
        raise OSError("the connection was closed")
