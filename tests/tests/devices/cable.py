"""A cable between a board in QEMU and the computer: `cable.py KIND PATH BOARD NOISE`.

KIND is `tty`, and PATH becomes a link to a terminal device; or `socket`, and PATH becomes a Unix socket. BOARD is QEMU's socket. Of every
NOISE bytes in either direction about one is changed, one is dropped and one is added; 0 is a good cable. It ends when the board goes.
"""

import os
import pty
import random
import select
import socket
import sys
import tty

kind, path, board_path, noise = *sys.argv[1:4], int(sys.argv[4])
chance = random.Random(1)


def disturb(data: bytes) -> bytes:
    if noise == 0:
        return data
    out = bytearray()
    for byte in data:
        event = chance.randrange(noise * 3)
        if event == 0:
            continue
        out.append(byte ^ 1 << chance.randrange(8) if event == 1 else byte)
        if event == 2:
            out.append(chance.randrange(256))
    return bytes(out)


def main() -> None:
    board = socket.socket(socket.AF_UNIX)
    board.connect(board_path)
    listener = None
    if kind == "tty":
        master, slave = pty.openpty()
        tty.setraw(slave)  # it stays open, so that the terminal outlives those who use it
        os.symlink(os.ttyname(slave), path)
        near = master
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        near = None
    print("ready", flush=True)
    while True:
        readers = [board.fileno(), *([near] if near is not None else []), *([listener.fileno()] if listener and near is None else [])]
        ready, _, _ = select.select(readers, [], [])
        if listener and listener.fileno() in ready:
            near = listener.accept()[0].detach()
            continue
        if board.fileno() in ready:
            data = board.recv(4096)
            if not data:
                return
            if near is not None:  # else nobody listens, and it is lost, as on a real line
                try:
                    os.write(near, disturb(data))
                except OSError:
                    os.close(near)
                    near = None
        if near is not None and near in ready:
            try:
                data = os.read(near, 4096)
            except OSError:
                data = b""
            if data:
                board.sendall(disturb(data))
            elif listener:
                os.close(near)
                near = None


main()
