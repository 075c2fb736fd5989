#!/usr/bin/env python3
"""The most stack that a firmware needs, from what GCC says about its functions (-fcallgraph-info=su). No function may call itself, except for
those of the codec: the messages of a device have maps within maps, and none within these.

  stack.py MAIN FUNCTIONS FILE.ci...    MAIN and FUNCTIONS are the bytes of the main stack and of the one on which functions run
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

NODE = re.compile(r'node: \{ title: "([^"]+)" label: "(?:[^"]*?\\n)*?(?:(\d+) bytes \((static|dynamic[^)]*)\))?"')
EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
INDIRECT = "__indirect_call"
# What calls through pointers, and where what is called stands: the functions of this file that nobody calls by name. A writer
# without a drain calls none, and this firmware answers no remote requests (serve.c).
THROUGH = {"src": "tests/board/image.c", "uplink.c": "uplink/serial.c", "serve.c": None, "serial.c": "tests/board/image.c",
           "pack.c": None, "stack.c": None}
RUNS, RUN_ON, ON_ITS_STACK = "src/run.c:run_one", "port/cortex_m/stack.c:run_on", "src/run.c:handle_record"
NESTED, MAPS = ("encode_map", "decode_map", "decode_field", "decode_array"), 2
# libgcc comes without such files: the deepest of its soft doubles saves this much.
OF_LIBRARY = 64
# An exception saves 8 words, and may have to align the stack.
EXCEPTION = 36


class Program:
    """Functions, what they need themselves, and whom they call."""

    def __init__(self, files: list[Path]) -> None:
        self.own: dict[str, int] = {}
        self.calls: dict[str, set[str]] = {}
        for file in files:
            text = file.read_text()
            for name, size, kind in NODE.findall(text):
                if size:
                    if kind != "static":
                        raise SystemExit(f"{name} needs a stack that depends on its input ({kind})")
                    self.own[name] = int(size)
            for caller, called in EDGE.findall(text):
                self.calls.setdefault(caller, set()).add(called)
        by_name = set().union(*self.calls.values())
        self.only_by_pointer = {name for name in self.own if ":" in name and name not in by_name}

    def named(self, end: str) -> str:
        return next(name for name in self.own if name.endswith(end))

    def through_pointers(self, caller: str) -> set[str]:
        file = self.file_of(caller)
        key = "src" if file.parent.name == "src" else file.name
        if key not in THROUGH:
            raise SystemExit(f"{caller} calls through a pointer, and nobody knows whom")
        where = THROUGH[key]
        found = {name for name in self.only_by_pointer if where and f"{where}:" in name}
        return {self.named(RUN_ON)} if caller.endswith(RUNS) else found

    def file_of(self, name: str) -> Path:
        if ":" in name:
            return Path(name.split(":")[0])
        return self.files[name]

    files: dict[str, Path]

    def depth(self, name: str, path: tuple[str, ...] = ()) -> tuple[int, tuple[str, ...]]:
        """The most bytes, and through whom."""
        if path.count(name) == MAPS and name.split(":")[-1] in NESTED:
            return 0, ()
        if name in path and name.split(":")[-1] not in NESTED:
            raise SystemExit(f"{name} calls itself: {' -> '.join(path)}")
        if name not in self.own:
            return OF_LIBRARY, (name,)
        called: set[str] = set()
        for one in self.calls.get(name, set()):
            called |= self.through_pointers(name) if one == INDIRECT else {one}
        if name.endswith(ON_ITS_STACK):
            called = set()
        deepest = max((self.depth(one, (*path, name)) for one in sorted(called)), default=(0, ()))
        return self.own[name] + deepest[0], (name, *deepest[1])


def files_of(files: list[Path]) -> dict[str, Path]:
    """The source of each function that other files may call."""
    found = {}
    for file in files:
        for name, label in re.findall(r'node: \{ title: "([^":]+)" label: "([^"]*)"', file.read_text()):
            if " bytes (" in label:
                found[name] = Path(label.split("\\n")[1].split(":")[0])
    return found


def main() -> int:
    main_bytes, function_bytes, files = int(sys.argv[1]), int(sys.argv[2]), [Path(name) for name in sys.argv[3:]]
    program = Program(files)
    program.files = files_of(files)
    tick = max(program.depth(name)[0] for name in ("board_tick", "board_fault")) + EXCEPTION
    # A function gets a record, and calls what the library offers to functions.
    offered = ["mean_handle", "mr_append", "mr_get", "mr_latest", "mr_run_id"]
    failed = False
    for what, limit, roots, more in (("main stack", main_bytes, ["main"], 2 * tick),
                                     ("stack of functions", function_bytes, offered, EXCEPTION + program.own[program.named(ON_ITS_STACK)])):
        size, path = max(program.depth(root) for root in roots)
        print(f"{size + more:6}  {what}; the limit is {limit}: {' > '.join(name.split(':')[-1] for name in path)}")
        failed |= size + more > limit
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
