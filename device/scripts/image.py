#!/usr/bin/env python3
"""Compares the flash and the RAM of a linked image with the limits of sizes.txt.

  image.py LIMITS STACK < output of `size`    LIMITS has lines `image BYTES` and `ram BYTES`; STACK is the main stack, which is RAM as well
"""

import sys
from pathlib import Path


def main() -> int:
    limits = dict(line.split() for line in Path(sys.argv[1]).read_text().splitlines())
    text, data, bss = (int(word) for word in sys.stdin.read().splitlines()[1].split()[:3])
    found = {"image": text + data, "ram": data + bss + int(sys.argv[2])}
    for name, value in found.items():
        print(f"{value:6}  {name}; the limit is {limits[name]}")
    return int(any(value > int(limits[name]) for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main())
