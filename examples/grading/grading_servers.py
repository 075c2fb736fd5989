"""The databases of this example: a PostgreSQL and an etcd of its own, and a proxy that makes them as far away as one likes."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

PASSWORD = "correct horse"
#: A busy machine needs minutes until Go has compiled its library.
PATIENCE_S = 600
CHUNK_BYTES = 64 << 10


class Failed(Exception):
    """Something did not work; the message says what."""


def find_program(name: str) -> str:
    """A program of a package, also where not every user looks."""
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    if found := shutil.which(name, path=os.pathsep.join(places)):
        return found
    raise Failed(f"{name} is not installed: run scripts/setup.sh test")


def reserved_port() -> socket.socket:
    """A port that the system gives to nobody else meanwhile: bound and not listening, so that a server may bind it, too."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


class Server(ABC):
    """A database in a temporary directory, which can be stopped and started again."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="grading-"))
        self.reserved = reserved_port()
        self.port: int = self.reserved.getsockname()[1]
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> Server:
        try:
            self.create()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.reserved.close()
        shutil.rmtree(self.place, ignore_errors=True)

    def start(self) -> None:
        """Starts it; returns when it answers."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.answers():
            if self.process is None or self.process.poll() is not None:
                with (self.place / "server.log").open("ab") as said:
                    streams = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
                    self.process = subprocess.Popen(self.command(), cwd=self.place, **streams, **self.user())
            if time.monotonic() > deadline:
                raise Failed(f"{self.command()[0]} does not answer:\n{(self.place / 'server.log').read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it at once, as a crash does: it recovers at the next start."""
        if self.process:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
            self.process = None

    def user(self) -> dict[str, int]:
        return {}

    def create(self) -> None:
        pass

    @abstractmethod
    def command(self) -> list[str]:
        """The server's command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers requests."""


class Postgres(Server):
    """PostgreSQL. It does not run as root, so root starts it as another user."""

    def user(self) -> dict[str, int]:
        if os.geteuid() != 0:
            return {}
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return {"user": entry.pw_uid, "group": entry.pw_gid}
        raise Failed("there is no user besides root, and PostgreSQL does not run as root")

    def create(self) -> None:
        password = self.place / "password"
        password.write_text(PASSWORD)
        if who := self.user():
            for path in (self.place, password):
                os.chown(path, who["user"], who["group"])
        options = ["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "-N", "--pwfile", str(password)]
        command = [find_program("initdb"), *options, "-D", str(self.place / "data")]
        done = subprocess.run(command, cwd=self.place, capture_output=True, text=True, **self.user())
        if done.returncode:
            raise Failed(f"initdb: {done.stderr}")

    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=16MB", "max_connections=30"]
        options = [word for setting in settings for word in ("-c", setting)]
        return [find_program("postgres"), "-D", str(self.place / "data"), "-p", str(self.port), *options]

    def answers(self) -> bool:
        return bool(self.process) and self.psql("SELECT 1", "postgres").returncode == 0

    def psql(self, sql: str, database: str) -> subprocess.CompletedProcess:
        command = ["psql", "-qAt", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-c", sql, database]
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "20"}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def query(self, sql: str, database: str) -> list[str]:
        """What a query answers: a line for each row."""
        done = self.psql(sql, database)
        if done.returncode:
            raise Failed(f"{sql}: {done.stderr}")
        return done.stdout.splitlines()


class Etcd(Server):
    """One etcd."""

    def __init__(self) -> None:
        super().__init__()
        self.peers = reserved_port()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.peers.close()

    def command(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self.port, self.peers.getsockname()[1]))
        options = ["--data-dir", str(self.place / "data"), "--name", "one", "--initial-cluster", f"one={peers}"]
        options += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        options += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        return [find_program("etcd"), *options]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as line:
                line.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return b" 200 " in line.recv(64)
        except OSError:
            return False


class Distance:
    """A proxy to a server. What it gets leaves half a round trip later, in order, and any number of messages may be on their way."""

    def __init__(self, server: Server, round_trip_s: float) -> None:
        self.server, self.round_trip_s = server, round_trip_s
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Distance:
        self.thread.start()
        starting = asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.listening = asyncio.run_coroutine_threadsafe(starting, self.loop).result(PATIENCE_S)
        self.port: int = self.listening.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.close(), self.loop).result(PATIENCE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def close(self) -> None:
        self.listening.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.server.port)
        except OSError:
            writer.close()
            return
        ways = [asyncio.ensure_future(self.carry(reader, back)), asyncio.ensure_future(self.carry(there, writer))]
        try:
            # If one side has ended the connection, the other one has to notice.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the proxy ends
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, back):
                end.close()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.ensure_future(self.arrive(under_way, writer))
        try:
            data = b"anything"
            while data:
                try:
                    data = await reader.read(CHUNK_BYTES)
                except OSError:
                    data = b""
                under_way.put_nowait((self.loop.time() + self.round_trip_s / 2, data))
            await arriving
        finally:
            arriving.cancel()
            await asyncio.gather(arriving, return_exceptions=True)

    async def arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await under_way.get()
            if (wait := due - self.loop.time()) > 0:
                await asyncio.sleep(wait)
            if not data:
                return
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                return
