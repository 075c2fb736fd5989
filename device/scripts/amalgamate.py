#!/usr/bin/env python3
"""Writes the whole library as one header and one source file, for projects without a build system of their own.

  amalgamate.py FOLDER    FOLDER/millrace_device.h, FOLDER/millrace_device.c, and a copy of millrace.h, which functions include

In one source file, names that are private to a file would collide. So each of them gets the name of its file before it.
"""

import re
import sys
from pathlib import Path

DEVICE = Path(__file__).resolve().parents[1]
WIRE = DEVICE.parent / "sdk/c/wire"
WHERE = [DEVICE / "include", DEVICE / "src", DEVICE / "uplink", DEVICE / "update", DEVICE / "remote", WIRE, DEVICE.parent / "sdk/c"]
PUBLIC = ["millrace_device.h", "pack.h", "wire.h", "crypto.h", "token.h", "channel.h", "millrace_guard.h", "millrace_uplink.h",
          "millrace_serial.h", "millrace_identity.h", "millrace_provision.h", "millrace_update.h", "millrace_boot.h", "millrace_remote.h"]
SOURCES = (["src/" + name for name in ("bytes", "ring", "walk", "command", "catalog", "clock", "journal", "open", "records", "pending", "run")]
           + ["uplink/" + name for name in ("guard", "serve", "uplink", "serial", "identity", "provision")]
           + ["update/update", "update/boot", "remote/locate", "remote/remote"])
INCLUDE = re.compile(r'^#include "([^"]+)"[^\n]*\n', re.M)
# Comments, texts and characters stay as they are; names behind a dot or an arrow are members.
TOKEN = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|(?:\.|->)\s*[A-Za-z_]\w*|[A-Za-z_]\w*', re.S)


def find(name: str) -> Path:
    return next(folder / Path(name).name for folder in WHERE if (folder / Path(name).name).exists())


def expand(text: str, known: set[str]) -> str:
    """The text with the files that it includes, each of them once."""
    def put(match: re.Match[str]) -> str:
        name = Path(match[1]).name
        if name in known:
            return ""
        known.add(name)
        return expand(find(name).read_text(), known)
    return INCLUDE.sub(put, text)


def private_names(text: str) -> set[str]:
    """Functions, variables, constants, types and macros that only one file has."""
    names = set(re.findall(r"^static [^=;{()]*?\b(\w+)\s*(?:\(|\[|=|;)", text, re.M))
    names |= set(re.findall(r"^static [^\n(]*?[ *](\w+)\(", text, re.M))
    names |= {name for group in re.findall(r"^static [\w ]+ (\w+(?:, \w+)+);", text, re.M) for name in group.split(", ")}
    names |= set(re.findall(r"^\} (\w+);", text, re.M))
    names |= set(re.findall(r"^typedef [^{;]* (\w+);", text, re.M))
    names |= set(re.findall(r"^#define (\w+)", text, re.M))
    for body in re.findall(r"^(?:typedef )?enum \{(.*?)\}", text, re.M | re.S):
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", body))
    # Macros paste the names of the tables of wire.c together; they are unique.
    shared = re.compile(r"(mrd|mrw|mr)_|MR[DW]?_|MILLRACE|sizeof$|offsetof$|\w+_(fields|shape)$")
    return {name for name in names if not shared.match(name)}


def rename(text: str, prefix: str, names: set[str]) -> str:
    def put(match: re.Match[str]) -> str:
        word = match[0]
        return f"{prefix}_{word}" if word in names else word
    return TOKEN.sub(put, text)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    header = "".join(expand(f'#include "{name}"\n', known) for name in PUBLIC)
    (folder / "millrace_device.h").write_text(header)
    (folder / "millrace.h").write_text(find("millrace.h").read_text())
    parts = ['#include "millrace_device.h"\n']
    known |= {"millrace.h"}
    files = [DEVICE / f"{name}.c" for name in SOURCES] + [WIRE / f"{name}.c" for name in ("pack", "wire", "crypto", "token", "channel")]
    for file in files:
        text = file.read_text()
        if file.name == "run.c":
            text = text.replace('#include "millrace.h"', '#include <millrace.h>')
        whole = expand(text, known)
        # What a header brought in is shared, so only the names of the file itself are private.
        own = private_names(text + (find("shapes.inc").read_text() if file.name == "wire.c" else ""))
        parts.append(f"\n/* ---- {file.name} ---- */\n\n" + rename(whole, file.stem, own))
    source = "".join(parts).replace("#include <millrace.h>", '#include "millrace.h"')
    (folder / "millrace_device.c").write_text(source)


if __name__ == "__main__":
    main()
