"""The licences of the libraries that are linked into the packages: from Cargo.lock and the sources that cargo has downloaded, and those of
the dashboard, from web/package-lock.json and web/node_modules.

    scripts/notices.py      prints them
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The programs and libraries that packages contain.
ROOTS = {"millrace-cli", "millrace-python"}
# Files of a library that state its licence.
LICENCE = re.compile(r"(?i)^(licen[sc]e|copying|notice|unlicense|copyright)(?!.*\.rs$)")
# A library with one of these and no file of its own is under the Apache License, which is printed once.
APACHE = "Apache-2.0"
RULE = "=" * 100

RUST = """The Rust standard library is linked into every Rust program: copyright The Rust Project Developers, MIT or Apache-2.0; see
https://www.rust-lang.org/policies/licenses."""

# musl's COPYRIGHT file, without its list of authors.
MUSL = """The static program of the tarball and the image contains the C library musl, https://musl.libc.org, version 1.2:

Copyright © 2005-2020 Rich Felker, et al.

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def libraries(machine: str) -> list[dict[str, Any]]:
    """The third-party packages that ROOTS depend on, by name and version."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", f"{machine}-unknown-linux-gnu"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] in ROOTS and package["source"] is None]
    if len(waiting) != len(ROOTS):
        sys.exit(f"notices: cargo does not know all of {', '.join(sorted(ROOTS))}")
    seen: set[str] = set()
    while waiting:
        id = waiting.pop()
        if id not in seen:
            seen.add(id)
            # Without packages that only builds and tests need.
            waiting += [link["pkg"] for link in nodes[id]["deps"] if any(kind["kind"] is None for kind in link["dep_kinds"])]
    others = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def licences(package: dict[str, Any]) -> list[str]:
    """The texts of the files that state a library's licence."""
    folder = Path(package["manifest_path"]).parent
    files = [path for path in folder.rglob("*") if path.is_file() and LICENCE.match(path.name)]
    return [path.read_text(errors="replace").strip() for path in sorted(files)]


def pages() -> list[tuple[str, str, list[str]]]:
    """The libraries in the dashboard's pages: name and version, a line about each, and its licences."""
    web = ROOT / "web"
    locked = json.loads((web / "package-lock.json").read_text())["packages"]
    found = []
    for path, package in sorted(locked.items()):
        # Without those that only build the pages.
        if not path or package.get("dev") or package.get("optional"):
            continue
        folder = web / path
        files = sorted(file for file in folder.glob("*") if file.is_file() and LICENCE.match(file.name))
        name = f"{path.removeprefix('node_modules/')} {package['version']}"
        if not files:
            sys.exit(f"notices: {name} of the dashboard has no licence file in {folder.relative_to(ROOT)}; run make web")
        found.append((name, f"{name} (dashboard): {package['license']}", [file.read_text().strip() for file in files]))
    return found


def text(machine: str = platform.machine()) -> str:
    """A list of the libraries of a program for this kind of machine, and each text once with the libraries that it belongs to."""
    found = libraries(machine)
    apache = (ROOT / "LICENSE").read_text().strip()
    owners: dict[str, list[str]] = {}
    for package in found:
        name = f"{package['name']} {package['version']}"
        texts = licences(package)
        if not texts:
            if APACHE not in (package["license"] or ""):
                sys.exit(f"notices: {name} has no licence file, and its licence is {package['license']}")
            texts = [apache]
        for each in texts:
            owners.setdefault(each, []).append(name)
    dashboard = pages()
    for name, _, texts in dashboard:
        for each in texts:
            owners.setdefault(each, []).append(name)
    lines = ["Millrace contains these libraries. Their licences follow the list.", ""]
    lines += [f"{package['name']} {package['version']}: {package['license']}; {package['repository'] or ''}".rstrip("; ") for package in found]
    lines += [line for _, line, _ in dashboard]
    lines += ["", RUST]
    for each, names in owners.items():
        lines += ["", RULE, ", ".join(dict.fromkeys(names)), RULE, "", each]
    return "\n".join([*lines, "", RULE, "", MUSL, ""])


if __name__ == "__main__":
    sys.stdout.write(text())
