#!/usr/bin/env python3
"""Builds the packages in target/packages: a wheel with the program in it, a tarball with a static program, a Debian package with a
repository for apt, and an image for containers.

    scripts/dist.py                       all packages of this machine
    scripts/dist.py wheel deb             some of them: wheel, tarball, deb, apt, image
    scripts/dist.py --built               from the programs that are already in target/
    scripts/dist.py --machine aarch64     tarball, deb, apt and image for another kind of machine, all with the static program
    scripts/dist.py --payload PROGRAM     tries the packaging with any program, and compresses nothing

`scripts/try-dist.sh` installs each package in a minimal Debian. SHA256SUMS has the checksum of each file; `scripts/release/sign.py` signs
a release. Packages of the same commit that are built with the same tools have the same bytes, because all dates in them are those of the
commit.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import cache, partial
from pathlib import Path

import notices
from release import apt, oci

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "target" / "packages"
# The folder of the profile `dist` under target/.
PROFILE = "dist"
# The kind of machine that the packages are for, and a program for all of them in place of those of target/.
MACHINE = platform.machine()
PAYLOAD: Path | None = None
LEVEL = 9
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
KINDS = ["wheel", "tarball", "deb", "apt", "image"]
# A relative link or picture of a page.
LINK = re.compile(r"!?\[(?P<text>[^][]*)\]\((?P<target>[^)\s#]+)(?:#[^)\s]*)?\)")

DESCRIPTION = "event-driven serverless runtime: records of append-only logs run functions"
MAINTAINER = "Millrace developers <packages@millrace.invalid>"

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: millrace
Comment: The program contains libraries of others. third-party-notices.txt.gz in
 this directory lists them with their licences.

Files: *
Copyright: 2026 The Millrace developers
License: Apache-2.0

License: Apache-2.0
 Licensed under the Apache License, Version 2.0 (the "License"); you may not use
 this file except in compliance with the License. Unless required by applicable
 law or agreed to in writing, software distributed under the License is
 distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
 either express or implied. See the License for the specific language governing
 permissions and limitations under the License.
 .
 On Debian systems, the complete text of the Apache License, Version 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
"""


def fail(what: str) -> None:
    sys.exit(f"dist: {what}")


def run(*command: str | Path, **options: object) -> str:
    """Runs a command and returns what it printed."""
    ended = subprocess.run([str(word) for word in command], cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
    if ended.returncode != 0:
        fail(f"`{' '.join(str(word) for word in command)}` failed with {ended.returncode}")
    return str(ended.stdout)


def version() -> str:
    found = re.search(r'^\[workspace\.package\]\nversion = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)
    assert found, "Cargo.toml has a version"
    return found[1]


def epoch() -> int:
    """When the commit was made."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))


def foreign() -> bool:
    return platform.machine() != MACHINE


def ask(binary: Path, *words: str | Path) -> str:
    """What the program prints, in an emulator if it is for another kind of machine."""
    emulator = [f"qemu-{MACHINE}-static"] if foreign() else []
    return run(*emulator, binary, *words)


def cross() -> dict[str, str]:
    """The linker and the C compiler for another kind of machine. Only `ring` has C code, and it needs no C library, so Debian's compiler
    does for musl as well; the linker is the one that comes with Rust."""
    target, name = f"{MACHINE}-unknown-linux-musl", f"{MACHINE}-linux-gnu"
    variable = target.upper().replace("-", "_")
    return {
        f"CARGO_TARGET_{variable}_LINKER": "rust-lld",
        f"CC_{target.replace('-', '_')}": f"{name}-gcc",
        f"AR_{target.replace('-', '_')}": f"{name}-ar",
    }


def libc_needed(binary: Path) -> tuple[int, int]:
    """The newest version of the C library that a dynamic binary needs."""
    symbols = run(f"{MACHINE}-linux-gnu-objdump" if foreign() else "objdump", "-T", binary)
    return max((int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))


def build(kinds: list[str]) -> None:
    cargo = ["cargo", "build", "--locked", "--profile", PROFILE, "-p", "millrace-cli"]
    static = [*cargo, "--target", f"{MACHINE}-unknown-linux-musl"]
    if foreign():
        run(*static, env={**os.environ, **cross()})
        return
    if "wheel" in kinds or "deb" in kinds:
        run(*cargo)
    if "tarball" in kinds or "image" in kinds:
        run(*static)


def program(static: bool) -> Path:
    folder = f"{MACHINE}-unknown-linux-musl/{PROFILE}" if static else PROFILE
    path = PAYLOAD or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / folder / "millrace"
    if not path.is_file():
        fail(f"{path} is not there; run scripts/dist.py without --built")
    if ask(path, "version").strip() != f"millrace {version()}":
        fail(f"{path} is of another version than {version()}")
    if static and not PAYLOAD and "statically linked" not in (found := run("file", path)) and "static-pie linked" not in found:
        fail(f"{path} is not static")
    return path


def wheel(built: bool) -> Path:
    """The wheel of the Python package, and the program among its scripts."""
    # What scripts/wheel.sh built for the tests is enough to try the packaging.
    made = ROOT / "target" / ("wheels" if PAYLOAD else "wheels-dist")
    if not built:
        shutil.rmtree(made, ignore_errors=True)
        maturin = ROOT / ".venv" / "bin" / "maturin"
        run(maturin, "build", "--quiet", "--locked", "--profile", PROFILE, "--manifest-path", "sdk/python/Cargo.toml",
            "--interpreter", ROOT / ".venv" / "bin" / "python", "--compatibility", "linux", "--out", made)
    found = sorted(made.glob("millrace-*.whl"))
    if len(found) != 1:
        again = "; make it: rm -f .venv/.wheel && scripts/wheel.sh dev" if PAYLOAD else ""
        fail(f"{made.relative_to(ROOT)} does not hold one wheel{again}")
    binary = program(static=False)
    with zipfile.ZipFile(found[0]) as source:
        native = next(name for name in source.namelist() if name.endswith(".so"))
        with tempfile.TemporaryDirectory() as scratch:
            needed = max(libc_needed(binary), libc_needed(Path(source.extract(native, scratch))))
        name, number = "millrace", version()
        tag = f"cp310-abi3-manylinux_{needed[0]}_{needed[1]}_{MACHINE}"
        into = PACKAGES / f"{name}-{number}-{tag}.whl"
        info = f"{name}-{number}.dist-info"
        files = {entry: source.read(entry) for entry in source.namelist() if not entry.endswith("/RECORD")}
    files[f"{name}-{number}.data/scripts/millrace"] = binary.read_bytes()
    for path, data in {**dict(commands(binary)), **dict(documents())}.items():
        files[f"{name}-{number}.data/data/{path}"] = data
    for path, data in [("LICENSE", license_text()), ("THIRD-PARTY-NOTICES.txt", third_party())]:
        files[f"{info}/licenses/{path}"] = data
        files[f"{info}/METADATA"] = with_header(files[f"{info}/METADATA"], f"License-File: {path}")
    files[f"{info}/WHEEL"] = re.sub(rb"(?m)^Tag: .*$", f"Tag: {tag}".encode(), files[f"{info}/WHEEL"])
    rows = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as out:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path.endswith("/scripts/millrace") else 0o100644) << 16
            out.writestr(entry, data)
    return into


@cache
def third_party() -> bytes:
    """The licences of the libraries in the program."""
    return notices.text(MACHINE).encode()


def license_text() -> bytes:
    return (ROOT / "LICENSE").read_bytes()


def with_header(metadata: bytes, line: str) -> bytes:
    """Adds a header to a wheel's metadata, unless it is there."""
    headers, empty, body = metadata.partition(b"\n\n")
    if line.encode() in headers.split(b"\n"):
        return metadata
    return headers + b"\n" + line.encode() + empty + body


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, LEVEL, mtime=0)


def commands(binary: Path) -> Iterator[tuple[str, bytes]]:
    """Manual pages and completions, made by the program."""
    with tempfile.TemporaryDirectory() as scratch:
        ask(binary, "man", scratch)
        for page in sorted(Path(scratch).iterdir()):
            yield f"share/man/man1/{page.name}.gz", zipped(page.read_bytes())
    for shell, path in [
        ("bash", "share/bash-completion/completions/millrace"),
        ("zsh", "share/zsh/vendor-completions/_millrace"),
        ("fish", "share/fish/vendor_completions.d/millrace.fish"),
    ]:
        yield path, ask(binary, "completions", shell).encode()


def documents() -> Iterator[tuple[str, bytes]]:
    """The documentation, in the folders of the source tree, so that links between the pages lead on. Links to what is only there are text."""
    patterns = ["*.md", "docs/**/*.md", "docs/**/*.svg", "docs/**/*.webp", "spec/**/*.md", "spec/openapi.json", "sdk/*/README.md", "examples/*/README.md"]
    found = {path for pattern in [*patterns, "examples/*/*.png"] for path in ROOT.glob(pattern)}
    there = {above for path in found for above in [path, *path.parents]}

    def link(of: Path, match: re.Match[str]) -> str:
        target = match["target"]
        return match[0] if "://" in target or Path(os.path.normpath(of.parent / target)) in there else match["text"]

    for path in sorted(found):
        data = path.read_bytes()
        if path.suffix == ".md":
            data = LINK.sub(partial(link, path), data.decode()).encode()
        yield f"share/doc/millrace/{path.relative_to(ROOT)}", data
    yield "share/doc/millrace/examples/millrace.service", unit()


def sources() -> Iterator[tuple[str, bytes]]:
    """What programs in C need. The client is compiled with the program that uses it."""
    folder = ROOT / "sdk" / "c"
    for header in ["millrace.h", "millrace_class.h"]:
        yield f"include/{header}", (folder / header).read_bytes()
    for pattern in ["*.c", "*.h", "*.inc", "wire/*.c", "wire/*.h", "local/local.h"]:
        for path in sorted(folder.glob(pattern)):
            yield f"share/millrace/c/{path.relative_to(folder)}", path.read_bytes()


def shared(binary: Path) -> dict[str, bytes]:
    """What goes under share/ and include/."""
    return {**dict(commands(binary)), **dict(documents()), **dict(sources())}


def unit() -> bytes:
    """The unit of docs/operating/systemd.md, for the program where packages put it."""
    text = (ROOT / "docs" / "operating" / "systemd.md").read_text()
    inside = text.split("```ini\n", 1)[1].split("```", 1)[0]
    return inside.encode()


def add(archive: tarfile.TarFile, path: str, data: bytes | None, mode: int, when: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.mtime, entry.uname, entry.gname = mode, when, "root", "root"
    if data is None:
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def tree(prefix: str, files: dict[str, bytes], when: int) -> bytes:
    """A tar archive of files and the directories that they are in; what is in a `bin` is a program."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        seen: set[str] = set()
        for path in sorted(files):
            parents = [str(parent) for parent in reversed(Path(path).parents) if str(parent) != "."]
            for parent in ["", *parents]:
                if parent not in seen:
                    seen.add(parent)
                    add(archive, f"{prefix}{parent}".rstrip("/") + "/", None, 0o755, when)
            add(archive, prefix + path, files[path], 0o755 if "bin" in parents or "usr/bin" in parents else 0o644, when)
    return buffer.getvalue()


def tarball() -> Path:
    binary = program(static=True)
    name = f"millrace-{version()}-linux-{MACHINE}"
    files = {"bin/millrace": binary.read_bytes(), **shared(binary)}
    files["README.md"] = (ROOT / "README.md").read_bytes()
    files["LICENSE"] = license_text()
    files["THIRD-PARTY-NOTICES.txt"] = third_party()
    into = PACKAGES / f"{name}.tar.gz"
    into.write_bytes(zipped(tree(f"{name}/", files, epoch())))
    return into


def debian_changelog(when: int) -> str:
    date = format_datetime(datetime.fromtimestamp(when, timezone.utc))
    return f"""millrace ({version()}) unstable; urgency=medium

  * Version {version()}; CHANGELOG.md in this directory describes it.

 -- {MAINTAINER}  {date}
"""


def deb() -> Path:
    binary, when = program(static=foreign()), epoch()
    files = {"usr/bin/millrace": binary.read_bytes(), **{f"usr/{path}": data for path, data in shared(binary).items()}}
    about = "usr/share/doc/millrace"
    files[f"{about}/copyright"] = COPYRIGHT.encode()
    files[f"{about}/third-party-notices.txt.gz"] = zipped(third_party())
    files[f"{about}/changelog.gz"] = zipped(debian_changelog(when).encode())
    libraries = f"Depends: libc6 (>= {'.'.join(map(str, libc_needed(binary)))}), libgcc-s1\n" if not foreign() else ""
    size = sum(len(data) for data in files.values()) // 1024
    control = f"""Package: millrace
Version: {version()}
Architecture: {DEBIAN.get(MACHINE, MACHINE)}
Maintainer: {MAINTAINER}
Installed-Size: {size}
{libraries}Recommends: python3 (>= 3.10), ca-certificates
Section: database
Priority: optional
Description: {DESCRIPTION}
 Millrace keeps state in append-only logs and runs functions in WebAssembly,
 Python or any program for each record that is appended. This package has the
 program millrace with its documentation, manual pages and completions, an
 example of a systemd unit, millrace.h for functions in C, and the sources of
 the client in C.
"""
    sums = "".join(f"{hashlib.md5(data).hexdigest()}  {path}\n" for path, data in sorted(files.items()))
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": zipped(tree("./", {"control": control.encode(), "md5sums": sums.encode()}, when)),
        "data.tar.gz": zipped(tree("./", files, when)),
    }
    out = bytearray(b"!<arch>\n")
    for name, data in parts.items():
        out += f"{name:<16}{when:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data
        out += b"\n" * (len(data) % 2)
    into = PACKAGES / f"millrace_{version()}_{DEBIAN.get(MACHINE, MACHINE)}.deb"
    into.write_bytes(bytes(out))
    return into


def repository() -> Path:
    """A repository of the Debian packages that are in the directory."""
    packages = sorted(PACKAGES.glob(f"millrace_{version()}_*.deb"))
    if not packages:
        fail("there is no Debian package for the repository; make `deb` as well")
    apt.write(packages, PACKAGES / "apt", epoch())
    return PACKAGES / "apt"


def image() -> Path:
    about = "usr/share/doc/millrace"
    files = {
        "usr/bin/millrace": program(static=True).read_bytes(),
        f"{about}/LICENSE": license_text(),
        f"{about}/THIRD-PARTY-NOTICES.txt": third_party(),
    }
    into = PACKAGES / f"millrace-{version()}-image-{MACHINE}.tar"
    into.write_bytes(oci.image(files, MACHINE, version(), epoch(), LEVEL))
    return into


def outdated(name: str, kinds: list[str]) -> bool:
    """Whether a file of an earlier run is replaced, or is of a release that was signed. Packages for other machines stay."""
    ends = {
        "wheel": ".whl",
        "tarball": f"-linux-{MACHINE}.tar.gz",
        "deb": f"_{DEBIAN.get(MACHINE, MACHINE)}.deb",
        "image": f"-image-{MACHINE}.tar",
    }
    signed = name in ("install.sh", "SHA256SUMS", "SHA256SUMS.sig", "millrace.gpg")
    return signed or any(name.endswith(ends[kind]) for kind in kinds if kind in ends)


def main() -> None:
    global MACHINE, PAYLOAD, PACKAGES, LEVEL
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", action="store_true", help="use the programs that are already in target/")
    parser.add_argument("--machine", choices=list(DEBIAN), default=MACHINE, help="the kind of machine [default: this one's]")
    parser.add_argument("--payload", type=Path, help="a program to put into all packages; needs no build")
    parser.add_argument("--out", type=Path, default=PACKAGES, help="where the packages go [default: target/packages]")
    parser.add_argument("kinds", nargs="*", help=f"{', '.join(KINDS)} [default: all]")
    asked = parser.parse_args()
    MACHINE, PAYLOAD, PACKAGES = asked.machine, asked.payload, asked.out.resolve()
    kinds = asked.kinds or [kind for kind in KINDS if not (kind == "wheel" and foreign())]
    if unknown := set(kinds) - set(KINDS):
        fail(f"no kind {' '.join(sorted(unknown))}; the kinds are {', '.join(KINDS)}")
    if "wheel" in kinds and foreign():
        fail("a wheel is built on the kind of machine that it is for")
    if PAYLOAD:
        asked.built, LEVEL = True, 0
    if not asked.built:
        build(kinds)
    PACKAGES.mkdir(parents=True, exist_ok=True)
    make = {"wheel": lambda: wheel(asked.built), "tarball": tarball, "deb": deb, "apt": repository, "image": image}
    for old in PACKAGES.iterdir():
        if outdated(old.name, kinds):
            old.unlink()
    for kind in sorted(kinds, key=KINDS.index):
        print(f"dist: {os.path.relpath(make[kind](), ROOT)}", flush=True)
    files = sorted(path for path in PACKAGES.iterdir() if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (PACKAGES / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
