"""A repository for apt: a directory that any web server, or a mount, can offer. `sign.py` signs it."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

SUITE = "stable"
COMPONENT = "main"


def control(package: Path) -> str:
    """The control file of a Debian package of ours, whose control.tar is compressed with gzip."""
    data = package.read_bytes()
    assert data.startswith(b"!<arch>\n"), f"{package} is a Debian package"
    at = 8
    while at < len(data):
        name, size = data[at : at + 16].decode().strip(), int(data[at + 48 : at + 58])
        at += 60
        if name == "control.tar.gz":
            with tarfile.open(fileobj=io.BytesIO(data[at : at + size])) as archive:
                found = archive.extractfile("./control")
                assert found, f"{package} has a control file"
                return found.read().decode()
        at += size + size % 2
    raise ValueError(f"{package} has no control.tar.gz")


def field(text: str, name: str) -> str:
    return next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:"))


def write(packages: list[Path], into: Path, when: int) -> None:
    """Writes the repository anew, with the packages and without a signature."""
    shutil.rmtree(into, ignore_errors=True)
    pool = Path("pool") / COMPONENT / "m" / "millrace"
    (into / pool).mkdir(parents=True)
    lists: dict[str, str] = {}
    for package in packages:
        shutil.copyfile(package, into / pool / package.name)
        data, about = package.read_bytes(), control(package)
        entry = f"{about.rstrip()}\nFilename: {pool / package.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
        architecture = field(about, "Architecture")
        lists[architecture] = lists.get(architecture, "") + entry
    sums = []
    for architecture, text in sorted(lists.items()):
        folder = Path(COMPONENT) / f"binary-{architecture}"
        (into / "dists" / SUITE / folder).mkdir(parents=True)
        for name, data in [("Packages", text.encode()), ("Packages.gz", gzip.compress(text.encode(), 9, mtime=0))]:
            (into / "dists" / SUITE / folder / name).write_bytes(data)
            sums.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {folder / name}\n")
    date = format_datetime(datetime.fromtimestamp(when, timezone.utc), usegmt=True).replace("GMT", "UTC")
    release = f"""Origin: Millrace
Label: Millrace
Suite: {SUITE}
Codename: {SUITE}
Date: {date}
Architectures: {" ".join(sorted(lists))}
Components: {COMPONENT}
Description: packages of Millrace
SHA256:
{"".join(sums)}"""
    (into / "dists" / SUITE / "Release").write_text(release)
