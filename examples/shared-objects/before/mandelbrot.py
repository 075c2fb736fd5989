"""Mandelbrot: processes draw the rows of a picture in one shared array.

    python mandelbrot.py [FILE]

The oracle: the picture's SHA-256 is the one below, and that of the same rows computed one after the other.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
from pathlib import Path

WIDTH, HEIGHT, DEPTH, PROCESSES = 240, 160, 100, 4
SHA256 = "922894d7cd6124f8d4c918c2c0b110e8cd6a857529ea0263cb3cdbd333f5ff32"


def row(y: int) -> bytes:
    """The grey values of a row."""
    found = bytearray()
    for x in range(WIDTH):
        c = complex(-2.2 + 3.2 * x / WIDTH, -1.1 + 2.2 * y / HEIGHT)
        z, depth = 0j, 0
        while depth < DEPTH and z.real * z.real + z.imag * z.imag <= 4:
            z, depth = z * z + c, depth + 1
        found.append(255 - 255 * depth // DEPTH)
    return bytes(found)


def draw(picture: multiprocessing.Array, rows: range) -> None:
    """Draws some rows."""
    for y in rows:
        picture[y * WIDTH : (y + 1) * WIDTH] = row(y)


def main(file: str = "") -> str:
    """The picture's SHA-256; written as PGM if a file is named."""
    picture = multiprocessing.Array("B", WIDTH * HEIGHT)
    parts = [range(at, HEIGHT, PROCESSES) for at in range(PROCESSES)]
    drawing = [multiprocessing.Process(target=draw, args=(picture, part)) for part in parts]
    for process in drawing:
        process.start()
    for process in drawing:
        process.join()
    pixels = bytes(picture[:])
    expected = hashlib.sha256(b"".join(map(row, range(HEIGHT)))).hexdigest()
    assert hashlib.sha256(pixels).hexdigest() == expected == SHA256
    if file:
        Path(file).write_bytes(f"P5 {WIDTH} {HEIGHT} 255\n".encode() + pixels)
    return expected


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
