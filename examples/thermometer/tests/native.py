"""`smooth.c` as a native process, called like a Python function: a host of the worker protocol in a few lines."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from pathlib import Path

from fake import Context, Record

HEAD = struct.Struct("<IBBHII")  # length, kind, flags, name length, work, number
WORK_FIXED = struct.Struct("<QQQII")  # seqno, run id, attempt
WORK, ANSWER, APPEND, DONE, GET, LATEST, OUTPUT = 1, 2, 18, 19, 20, 21, 24
CHANNEL = 3


class NativeFunction:
    """Runs of one persistent process; a run that fails raises ValueError."""

    def __init__(self, program: Path) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(120)

        def install() -> None:
            os.dup2(theirs.fileno(), CHANNEL)

        self.process = subprocess.Popen(
            [program], preexec_fn=install, close_fds=True, pass_fds=(CHANNEL,), env={"MILLRACE_FD": str(CHANNEL)}
        )
        theirs.close()
        self.stream = self.socket.makefile("rwb")
        self.frame()  # HELLO
        self.runs = 0

    def close(self) -> None:
        self.stream.close()
        self.socket.close()
        assert self.process.wait(120) == 0

    def frame(self) -> tuple[int, str, bytes]:
        length, kind, _, name_length, _, _ = HEAD.unpack(self.stream.read(HEAD.size))
        body = self.stream.read(length)
        return kind, body[:name_length].decode(), body[name_length:]

    def send(self, kind: int, number: int, body: bytes, name_length: int = 0) -> None:
        self.stream.write(HEAD.pack(len(body), kind, 0, name_length, self.runs, number) + body)
        self.stream.flush()

    def __call__(self, record: Record, ctx: Context) -> None:
        self.runs += 1
        name = record.log.encode()
        self.send(
            WORK, 1, WORK_FIXED.pack(record.seqno, 1, 1 << 16, 1, 0) + name + record.text.encode(), len(name)
        )
        said = b""
        while True:
            kind, name, data = self.frame()
            if kind == APPEND:
                ctx.staged.append((name, data.decode()))
            elif kind == GET:
                self.send(ANSWER, 0, ctx.get(name, int.from_bytes(data, "little")).text.encode())
            elif kind == LATEST:
                self.send(ANSWER, 0, ctx.latest(name).to_bytes(8, "little"))
            elif kind == OUTPUT:
                said += data
            elif kind == DONE:
                if name:
                    raise ValueError(f"{name} {data.decode()} {said.decode()}")
                return
            else:
                raise AssertionError(f"unexpected frame {kind}")
