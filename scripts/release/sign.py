#!/usr/bin/env python3
"""Signs the packages that `make dist` made, and checks a release as its users will.

    sign.py key KEY.pem                                             makes a key (Ed25519) for SHA256SUMS; fails if the file exists
    sign.py sign DIR --key KEY.pem --from ADDRESS [--gpg KEY-ID]    writes install.sh, SHA256SUMS, SHA256SUMS.sig; signs the apt repository
    sign.py check DIR                                               verifies signatures, checksums and names

ADDRESS is where the files will be published. docs/releasing.md shows a whole release.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import apt
import oci

HERE = Path(__file__).resolve().parent
SUMS, SIGNATURE, INSTALL, KEYRING = "SHA256SUMS", "SHA256SUMS.sig", "install.sh", "millrace.gpg"
# The version and the rest of the name of each package, as pip, apt and tar name them.
NAME = re.compile(r"millrace[-_](?P<version>\d+(?:\.\d+)+)[-_](?:cp310-.*\.whl|linux-\w+\.tar\.gz|image-\w+\.tar|\w+\.deb)")


def fail(what: str) -> None:
    sys.exit(f"sign: {what}")


def run(*command: str | Path, why: str) -> bytes:
    ended = subprocess.run([str(word) for word in command], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ended.returncode != 0:
        fail(f"{why}: {ended.stderr.decode(errors='replace').strip()}")
    return ended.stdout


def listed(directory: Path) -> list[Path]:
    """The files that SHA256SUMS lists: the apt repository has a list of its own."""
    return sorted(path for path in directory.iterdir() if path.is_file() and path.name not in (SUMS, SIGNATURE))


def sums(directory: Path) -> str:
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in listed(directory))


def version(directory: Path) -> str:
    """The version of all packages in a directory."""
    if not directory.is_dir():
        fail(f"there is no directory {directory}")
    found = set()
    for path in listed(directory):
        if path.name in (INSTALL, KEYRING):
            continue
        if not (match := NAME.fullmatch(path.name)):
            fail(f"{path.name} is not a file of a release; remove it")
        else:
            found.add(match["version"])
    if not found:
        fail(f"{directory} has no packages")
    if len(found) != 1:
        fail(f"{directory} has packages of {len(found)} versions, {', '.join(sorted(found))}; a release has one")
    return found.pop()


def new_key(path: Path) -> None:
    if path.exists():
        fail(f"{path} exists")
    before = os.umask(0o077)
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", path, why="openssl made no key")
    os.umask(before)
    print(f"sign: {path} is the secret key; keep it offline. Its public key is {public(path)}")


def public(key: Path) -> str:
    """A public key as install.sh has it."""
    text = run("openssl", "pkey", "-in", key, "-pubout", why="openssl cannot read the key").decode()
    lines = [line for line in text.splitlines() if not line.startswith("-----")]
    if len(lines) != 1:
        fail(f"{key} is not a key of Ed25519")
    return lines[0]


def sign(directory: Path, key: Path, address: str, gpg: str | None) -> None:
    number = version(directory)
    if not re.fullmatch(r"(?:https?://|/)[^\s'\\]+", address):
        fail(f"{address!r} is not an address (https://…) or an absolute path")
    text = (HERE / INSTALL).read_text()
    for name, value in [("RELEASE_FROM", address), ("RELEASE_KEY", public(key))]:
        if text.count(f"\n{name}=''\n") != 1:
            fail(f"{INSTALL} has no line {name}=''")
        text = text.replace(f"\n{name}=''\n", f"\n{name}='{value}'\n")
    repository = directory / "apt" / "dists" / apt.SUITE
    if gpg and not repository.is_dir():
        fail(f"{directory} has no apt repository to sign; `make dist` makes it")
    if gpg:
        run("gpg", "--batch", "--yes", "--local-user", gpg, "--digest-algo", "SHA512", "--clearsign",
            "--output", repository / "InRelease", repository / "Release", why="gpg did not sign the apt repository")
        (directory / KEYRING).write_bytes(run("gpg", "--batch", "--export", gpg, why="gpg did not export the key"))
    (directory / INSTALL).write_text(text)
    (directory / INSTALL).chmod(0o755)
    (directory / SUMS).write_text(sums(directory))
    run("openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", directory / SUMS, "-out", directory / SIGNATURE,
        why="openssl did not sign")
    print(f"sign: millrace {number} in {directory} is signed")
    check(directory)


def check(directory: Path) -> None:
    number = version(directory)
    found = re.search(r"^RELEASE_KEY='(.+)'$", (directory / INSTALL).read_text(), re.M) if (directory / INSTALL).is_file() else None
    if not found:
        fail(f"{directory} has no {INSTALL} with a key: it is not signed")
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as key:
            key.write(f"-----BEGIN PUBLIC KEY-----\n{found[1]}\n-----END PUBLIC KEY-----\n")
            key.flush()
            run("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key.name, "-rawin", "-in", directory / SUMS,
                "-sigfile", directory / SIGNATURE, why=f"the signature of {SUMS} is wrong")
    if (directory / SUMS).read_text() != sums(directory):
        fail(f"the files of {directory} are not those that {SUMS} lists")
    for image in directory.glob("*-image-*.tar"):
        oci.layers(image)
    if (repository := directory / "apt" / "dists" / apt.SUITE).is_dir():
        check_apt(directory, repository)
    print(f"sign: millrace {number} in {directory} is complete; its key is {found[1] if found else ''}")


def check_apt(directory: Path, repository: Path) -> None:
    """The signed list names the lists, which name the packages, which are those of the release."""
    if not (repository / "InRelease").is_file():
        print("sign: the apt repository is not signed; do not publish it", file=sys.stderr)
    else:
        # Of what was signed, the text that gpgv prints is trusted, not the file.
        release = run("gpgv", "--keyring", (directory / KEYRING).resolve(), "--output", "-", repository / "InRelease",
                      why="the signature of the apt repository is wrong").decode()
        if release.strip() != (repository / "Release").read_text().strip():
            fail("the signed list of the apt repository is another than Release")
    listed = (repository / "Release").read_text().split("SHA256:\n", 1)[1]
    for digest, size, name in (line.split() for line in listed.splitlines()):
        compare(repository / name, digest, int(size))
        if name.endswith("/Packages"):
            for entry in (repository / name).read_text().strip().split("\n\n"):
                package = directory / "apt" / apt.field(entry, "Filename")
                compare(package, apt.field(entry, "SHA256"), int(apt.field(entry, "Size")))
                compare(directory / package.name, apt.field(entry, "SHA256"), int(apt.field(entry, "Size")))


def compare(path: Path, digest: str, size: int) -> None:
    if not path.is_file() or path.stat().st_size != size or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        fail(f"{path} is not the file that the apt repository lists")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("key").add_argument("key", type=Path)
    signing = commands.add_parser("sign")
    signing.add_argument("directory", type=Path)
    signing.add_argument("--key", type=Path, required=True)
    signing.add_argument("--from", dest="address", required=True)
    signing.add_argument("--gpg")
    commands.add_parser("check").add_argument("directory", type=Path)
    asked = parser.parse_args()
    if asked.command == "key":
        new_key(asked.key)
    elif asked.command == "sign":
        sign(asked.directory, asked.key, asked.address.rstrip("/"), asked.gpg)
    else:
        check(asked.directory)


if __name__ == "__main__":
    main()
