#!/usr/bin/env python3
"""spec/vectors/device.json as tables for vectors.c; or, with the output of `vectors --bless`, the file with new bytes.

  vectors.py FILE              prints the tables
  vectors.py FILE --bless      reads what `vectors --bless` prints, and replaces the bytes of the images in FILE
"""

import json
import sys
from pathlib import Path

KINDS = {"open": 0, "append": 1, "wait": 2, "sync": 3, "clock": 4, "step": 5, "delivered": 6}


def array(data: str) -> str:
    """Hexadecimal digits as the bytes of an array in C, which is never empty."""
    return "{" + ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(data) or b"\0") + "}"


def call(call: dict) -> str:
    data, cause = call.get("data", ""), call.get("cause")
    log = json.dumps(call.get("log", ""))
    return (f"{{{KINDS[call['do']]}, {log}, {len(data) // 2}, (const uint8_t[]){array(data)}, "
            f"{f'(const uint8_t[]){array(cause)}' if cause else 'NULL'}, {call.get('number', 0)}u}}")


def image(image: dict) -> None:
    flash = image["flash"]
    logs = ", ".join(f"{{{json.dumps(log['name'])}, {log['history']}, {int(log.get('keep', False))}}}" for log in image["logs"])
    functions = ", ".join(f"{{{json.dumps(function['name'])}, {function['does']}, {json.dumps(function['on'])}, "
                          f"{function.get('attempts', 0)}, {json.dumps(function['dead_letter']) if 'dead_letter' in function else 'NULL'}, 0}}"
                          for function in image.get("functions", []))
    calls = ",\n     ".join(call(one) for one in image["calls"])
    spans = ",\n     ".join(f"{{{span['at']}, {len(span['hex']) // 2}, (const uint8_t[]){array(span['hex'])}}}" for span in image["bytes"])
    print(f"    {{{json.dumps(image['name'])}, {flash['sectors']}, {flash['sector_bytes']}, {flash['unit']}, {flash['torn_bytes']},")
    print(f"     {len(image['logs'])}, (const mrd_log[]){{{logs}}},")
    print(f"     {len(image.get('functions', []))}, (const mrd_function[]){{{functions or '{NULL, NULL, NULL, 0, NULL, 0}'}}},")
    print(f"     {len(image['calls'])}, (const call[]){{\n     {calls}}},")
    print(f"     {len(image['bytes'])}, (const span[]){{\n     {spans or '{0, 0, NULL}'}}}}},")


def bless(path: Path, vectors: dict) -> None:
    images: dict[str, list[dict]] = {}
    for line in sys.stdin:
        name, at, data = line.split()
        images.setdefault(name, []).append({"at": int(at), "hex": data})
    for image in vectors["images"]:
        image["bytes"] = images[image["name"]]
    path.write_text(json.dumps(vectors, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    path = Path(sys.argv[1])
    vectors = json.loads(path.read_text())
    if "--bless" in sys.argv:
        bless(path, vectors)
        return
    print("static const burst bursts[] = {")
    for kind in ("bursts", "refused"):
        for one in vectors[kind]:
            print(f"    {{{json.dumps(one['name'])}, {one['before']}u, {len(one['hex']) // 2}, (const uint8_t[]){array(one['hex'])}, "
                  f"{len(one.get('entries', []))}, {int(kind == 'bursts')}}},")
    print("};\nstatic const image images[] = {")
    for one in vectors["images"]:
        image(one)
    print("};")


if __name__ == "__main__":
    main()
