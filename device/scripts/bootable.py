#!/usr/bin/env python3
"""Makes an image that port/cortex_m/boot/boot.c starts from the bytes of a linked firmware.

  bootable.py BINARY IMAGE    writes the size into the seventh vector, and a CRC-32C behind the bytes
"""

import sys
from pathlib import Path

SIZE_AT = 28


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def main() -> None:
    image = bytearray(Path(sys.argv[1]).read_bytes())
    image.extend(b"\xff" * (-len(image) % 4))
    image[SIZE_AT:SIZE_AT + 4] = len(image).to_bytes(4, "little")
    image.extend(crc32c(bytes(image)).to_bytes(4, "little"))
    Path(sys.argv[2]).write_bytes(image)


if __name__ == "__main__":
    main()
