#!/usr/bin/env python3
"""Prints the bytes of each function in object files of ELF for ARM, and refuses a total above its limit.

  sizes.py COMPILER LIMITS OBJECT…    LIMITS has lines `COMPILER BYTES`; raise one only for a reason that the commit names
"""

import struct
import sys
from pathlib import Path


def sections(image: bytes) -> list[tuple[str, int, int]]:
    """Name, flags and size of each section of a 32-bit ELF file."""
    offset, = struct.unpack_from("<I", image, 32)
    size, count, names = struct.unpack_from("<HHH", image, 46)
    rows = [struct.unpack_from("<10I", image, offset + i * size) for i in range(count)]
    texts = rows[names][4]
    return [(image[texts + row[0]:image.index(b"\0", texts + row[0])].decode(), row[2], row[5]) for row in rows]


def main() -> int:
    compiler, limits, objects = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    limit = next(int(line.split()[1]) for line in limits.read_text().splitlines() if line.split()[0] == compiler)
    total = 0
    for path in objects:
        functions = []
        for name, flags, size in sections(Path(path).read_bytes()):
            # Code and constants have memory in the device; tables of the stack's unwinding are dropped by the linker.
            if flags & 2 and size > 0 and not name.startswith(".ARM."):
                functions.append((size, name.removeprefix(".text.")))
        print(f"{sum(size for size, _ in functions):6}  {Path(path).stem}")
        for size, name in sorted(functions, reverse=True):
            print(f"{size:6}    {name}")
        total += sum(size for size, _ in functions)
    print(f"{total:6}  in all; the limit for {compiler} is {limit}")
    if total > limit:
        print("sizes: above the limit of sizes.txt", file=sys.stderr)
    return int(total > limit)


if __name__ == "__main__":
    sys.exit(main())
