"""The packages that `make dist` makes: each is installed by the program that users have for it, and the program in it works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import MACHINE, PATIENCE_S, ROOT, SIGN, attempt, linked, refused, run, sign, small_release

sys.path.insert(0, str(ROOT / "scripts/release"))
import apt as apt_repository
import oci

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
# Files of packages belong to root: an ordinary user is root in a namespace of its own.
UNSHARE = shutil.which("unshare") or "unshare"
AS_ROOT = [] if os.geteuid() == 0 else [UNSHARE, "--map-root-user"]
CHROOT = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin") or "chroot"


def needs_namespaces(*before: str) -> None:
    if attempt(*before, "true").returncode != 0:
        pytest.skip(f"this user may not run {' '.join(before)}")


def works(millrace: Path, place: Path, *before: str | Path) -> None:
    """Creates a namespace and appends a record."""
    place.mkdir()
    environment = {**os.environ, "XDG_CONFIG_HOME": str(place / "config"), "MILLRACE_LISTEN": "none"}
    for words in [["init", "--bare"], ["log", "create", "raw"], ["log", "append", "raw", "21.5"]]:
        run(*before, millrace, *words, cwd=place, env=environment)
    assert run(*before, millrace, "log", "get", "raw", cwd=place, env=environment).stdout == "21.5\n"


@pytest.fixture(scope="session")
def archive_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of gpg with a key that signs repositories."""
    # The path of its agent's socket has to be short.
    place = Path(f"/tmp/millrace-gpg-{os.getpid()}")
    place.mkdir(0o700)
    environment = {**os.environ, "GNUPGHOME": str(place)}
    try:
        run("gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key",
            "Tests <tests@millrace.invalid>", "ed25519", "sign", "1d", env=environment)
        yield environment
    finally:
        attempt("gpgconf", "--kill", "gpg-agent", env=environment)
        shutil.rmtree(place)


@pytest.fixture
def release(packages: Path, key: Path, archive_key: dict[str, str], tmp_path: Path) -> Path:
    """A signed release with all packages."""
    copy = linked(packages, tmp_path / "release")
    sign(copy, key, "https://packages.example/millrace", "--gpg", "tests@millrace.invalid", env=archive_key)
    return copy


def test_every_part_has_the_same_version() -> None:
    places = {
        "Cargo.toml": r'^version = "(.+)"',
        "sdk/python/pyproject.toml": r'^version = "(.+)"',
        "sdk/java/pom.xml": r"<version>(.+?)</version>",
        "deploy/helm/millrace/Chart.yaml": r'^appVersion: "(.+)"',
    }
    found = {path: re.search(pattern, (ROOT / path).read_text(), re.M) for path, pattern in places.items()}
    assert len({match and match[1] for match in found.values()}) == 1 and all(found.values()), found


def test_pip_installs_the_wheel(packages: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    run(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps", "--ignore-installed",
        "--no-compile", "--prefix", tmp_path / "prefix", wheel)
    works(tmp_path / "prefix/bin/millrace", tmp_path / "farm")
    (site,) = (tmp_path / "prefix").glob("lib/python3*/site-packages")
    script = f"import millrace; print(millrace.open({str(tmp_path / 'farm')!r}).get('raw', 1).text(), millrace.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    assert run(sys.executable, "-c", script, env=environment).stdout.split() == ["21.5", str(site / "millrace/__init__.py")]
    assert (tmp_path / "prefix/share/doc/millrace/README.md").is_file()


def test_the_tarball_runs_where_it_was_unpacked(packages: Path, tmp_path: Path) -> None:
    run("tar", "-xzf", next(packages.glob("*.tar.gz")), "-C", tmp_path)
    (place,) = tmp_path.glob("millrace-*-linux-*")
    works(place / "bin/millrace", tmp_path / "farm")
    assert {"LICENSE", "THIRD-PARTY-NOTICES.txt", "README.md", "share", "include"} <= {path.name for path in place.iterdir()}


class Apt:
    """apt with directories of its own, in which only the libraries that the package needs are installed."""

    def __init__(self, root: Path, repository: Path, keyring: Path) -> None:
        self.root = root
        for folder in ["etc/apt/apt.conf.d", "etc/apt/sources.list.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial",
                       "var/cache/apt/archives/partial", "var/log/apt", "var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/bin"]:
            (root / folder).mkdir(parents=True)
        status = "".join(f"Package: {name}\nStatus: install ok installed\nArchitecture: {ARCHITECTURE}\nMulti-Arch: same\n"
                         f"Maintainer: nobody\nVersion: 99\nDescription: pretended\n\n" for name in ["libc6", "libgcc-s1"])
        (root / "var/lib/dpkg/status").write_text(status)
        # The deb822 entry that docs/releasing.md shows.
        (root / "etc/apt/sources.list.d/millrace.sources").write_text(
            f"Types: deb\nURIs: file:{repository}\nSuites: stable\nComponents: main\nSigned-By: {keyring}\n")
        (root / "apt.conf").write_text(
            f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\nDir::Bin::methods "/usr/lib/apt/methods";\n'
            f'DPkg::Options {{ "--root={root}"; }};\nAPT::Architecture "{ARCHITECTURE}";\nAPT::Architectures {{ "{ARCHITECTURE}"; }};\n'
            'APT::Sandbox::User "root";\nAPT::Install-Recommends "false";\n')

    def get(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C",
                       "DEBIAN_FRONTEND": "noninteractive"}
        return attempt(*AS_ROOT, "apt-get", "-q", "-y", *words, env=environment)

    def refuses(self, because: str, *words: str) -> None:
        ended = self.get(*words)
        assert ended.returncode != 0 and re.search(because, ended.stdout + ended.stderr), ended.stdout + ended.stderr
        assert not (self.root / "usr/bin/millrace").exists()


@pytest.fixture
def apt(release: Path, tmp_path: Path) -> Apt:
    if not shutil.which("apt-get"):
        pytest.skip("this system has no apt")
    needs_namespaces(*AS_ROOT)
    return Apt(tmp_path / "root", release / "apt", release / "millrace.gpg")


def test_apt_installs_from_the_repository(apt: Apt, tmp_path: Path) -> None:
    assert (updated := apt.get("update")).returncode == 0 and "W:" not in updated.stderr, updated.stdout + updated.stderr
    assert (installed := apt.get("install", "millrace")).returncode == 0, installed.stdout + installed.stderr
    works(apt.root / "usr/bin/millrace", tmp_path / "farm")
    listed = run("dpkg-query", f"--admindir={apt.root}/var/lib/dpkg", "-W", "-f=${Status} ${Maintainer}", "millrace").stdout
    assert listed.startswith("install ok installed Millrace"), listed
    assert (apt.root / "usr/share/doc/millrace/examples/millrace.service").is_file()
    assert (removed := apt.get("remove", "millrace")).returncode == 0, removed.stdout + removed.stderr
    assert not (apt.root / "usr/bin/millrace").exists()


def test_apt_refuses_a_repository_that_is_not_signed(apt: Apt, release: Path) -> None:
    (release / "apt/dists/stable/InRelease").unlink()
    apt.refuses("is not signed", "update")


def test_apt_refuses_a_repository_whose_signed_list_was_changed(apt: Apt, release: Path) -> None:
    signed = release / "apt/dists/stable/InRelease"
    signed.write_text(signed.read_text().replace("Label: Millrace", "Label: Windmill"))
    apt.refuses("BADSIG|bad signature|not signed|invalid", "update")


def test_apt_refuses_a_changed_package(apt: Apt, release: Path) -> None:
    (package,) = (release / "apt/pool/main/m/millrace").glob("*.deb")
    data = bytearray(package.read_bytes())
    data[-1] ^= 1
    package.unlink()
    package.write_bytes(data)
    assert apt.get("update").returncode == 0
    apt.refuses("Hash Sum mismatch", "install", "millrace")


def test_the_image_holds_a_program_that_serves(packages: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (archive,) = packages.glob("*-image-*.tar")
    config = oci.unpack(archive, root)
    assert (config["architecture"], config["os"]) == (ARCHITECTURE, "linux")
    inside = config["config"]
    environment = dict(line.split("=", 1) for line in inside["Env"])
    assert environment["MILLRACE_LISTEN"] == "0.0.0.0:7070" and "7070/tcp" in inside["ExposedPorts"]
    # The first user that it names is the one that it runs as.
    assert re.search(rf"^millrace:x:{inside['User']}:", (root / "etc/passwd").read_text(), re.M)
    assert (root / inside["WorkingDir"].lstrip("/")).stat().st_uid == (oci.USER if os.geteuid() == 0 else os.geteuid())
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    libraries(root / "usr/bin/millrace", root)
    needs_namespaces(UNSHARE, *AS_ROOT[1:], "--mount")
    # A container engine offers the devices of the machine, and changes into the directory of the work, while `chroot` begins in `/`.
    (root / "dev").mkdir()
    user = f"--userspec={inside['User']}" if os.geteuid() == 0 else ""
    script = f'mount --rbind /dev "$0/dev" && exec {CHROOT} {user} "$0" "$@"'
    enter = [UNSHARE, *AS_ROOT[1:], "--mount", "--propagation", "private", "/bin/sh", "-c", script, root]
    command = [*enter, *inside["Entrypoint"], "-n", inside["WorkingDir"]]
    run(*command, "init", "--bare", inside["WorkingDir"], env=environment)
    run(*command, "log", "create", "raw", env=environment)
    words = [str(word) for word in [*command, *inside["Cmd"]]]
    host = subprocess.Popen(words, env={**environment, "MILLRACE_LISTEN": "127.0.0.1:0"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)
    try:
        assert host.stdout
        said = ""
        while not re.search(r"http://127\.0\.0\.1:\d+", said):
            line = host.stdout.readline()
            assert line, said
            said += line
        run(*command, "log", "append", "raw", "21.5", env=environment)
    finally:
        host.terminate()
        assert host.wait(PATIENCE_S) == 0


def libraries(program: Path, root: Path) -> None:
    """What a program that is not static needs. The program of a real image needs nothing, because that of a debug build does."""
    listed = attempt("ldd", program)
    for path in re.findall(r"(/\S+) \(0x", listed.stdout) if listed.returncode == 0 else []:
        into = root / path.lstrip("/")
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, into)
        into.chmod(0o755)


def test_an_image_with_a_changed_layer_is_refused(packages: Path, tmp_path: Path) -> None:
    (archive,) = packages.glob("*-image-*.tar")
    with tarfile.open(archive) as layout:
        largest = max(layout.getmembers(), key=lambda member: member.size)
    data = bytearray(archive.read_bytes())
    data[largest.offset_data + largest.size // 2] ^= 1
    changed = tmp_path / "changed.tar"
    changed.write_bytes(data)
    refused(sys.executable, ROOT / "scripts/release/oci.py", "unpack", changed, tmp_path / "root", because="another digest or size")
    assert not (tmp_path / "root").exists()


def test_packages_of_the_same_programs_have_the_same_bytes(packages: Path, program: Path, tmp_path: Path) -> None:
    run(sys.executable, ROOT / "scripts/dist.py", "--payload", program, "--out", tmp_path, "deb", "apt", "image")
    again = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    assert len(again) == 6
    for name in again:
        assert (tmp_path / name).read_bytes() == (packages / name).read_bytes(), name


def test_packages_for_another_kind_of_machine_are_named_after_it(tmp_path: Path) -> None:
    """The packaging is tried without a program for that machine: a script takes its place, and that of the emulator."""
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)
    assert version
    for name, script in [("millrace", f'[ "$1" = version ] && echo "millrace {version[1]}" || echo "made by $0"'),
                         (f"qemu-{other}-static", 'touch "$0.used"; exec "$@"')]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    dist = [sys.executable, ROOT / "scripts/dist.py", "--payload", tmp_path / "millrace", "--machine", other, "--out", tmp_path / "out"]
    run(*dist, env=environment)
    assert (tmp_path / f"qemu-{other}-static.used").exists()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[other]
    names = [f"millrace-{version[1]}-linux-{other}.tar.gz", f"millrace-{version[1]}-image-{other}.tar", f"millrace_{version[1]}_{architecture}.deb"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(["SHA256SUMS", "apt", *names])
    control = apt_repository.control(tmp_path / "out" / names[2])
    assert apt_repository.field(control, "Architecture") == architecture
    assert "Depends" not in control, "the program is static"
    assert (tmp_path / f"out/apt/dists/stable/main/binary-{architecture}/Packages").is_file()
    config, _ = oci.layers(tmp_path / "out" / names[1])
    assert config["architecture"] == architecture
    refused(*dist, "wheel", because="a wheel is built on the kind of machine that it is for")


@pytest.fixture
def small(key: Path, archive_key: dict[str, str], tmp_path: Path) -> Path:
    """A signed release with small packages."""
    place = small_release(tmp_path / "small", key, "1.2.3")
    (place / f"millrace-1.2.3-image-{MACHINE}.tar").write_bytes(oci.image({"usr/bin/millrace": b"program"}, MACHINE, "1.2.3", 0))
    about = tmp_path / "deb/DEBIAN"
    about.mkdir(parents=True)
    (about / "control").write_text(f"Package: millrace\nVersion: 1.2.3\nArchitecture: {ARCHITECTURE}\nMaintainer: nobody\nDescription: small\n")
    package = place / f"millrace_1.2.3_{ARCHITECTURE}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tmp_path / "deb", package)
    apt_repository.write([package], place / "apt", 0)
    sign(place, key, "https://packages.example/millrace", "--gpg", "tests@millrace.invalid", env=archive_key)
    return place


def test_a_signed_release_is_checked_as_a_whole(small: Path, key: Path) -> None:
    check = [sys.executable, SIGN, "check", small]
    assert "is complete" in run(*check).stdout
    assert "RELEASE_FROM='https://packages.example/millrace'" in (small / "install.sh").read_text()

    def changes(name: str, because: str, data: bytes | None = None) -> None:
        path = small / name
        before = path.read_bytes()
        path.unlink() if data is None else path.write_bytes(data)
        refused(*check, because=because)
        path.write_bytes(before)

    (tarball,) = small.glob("*.tar.gz")
    (package,) = small.glob("*.deb")
    changes(tarball.name, "are not those that SHA256SUMS lists")
    changes(tarball.name, "are not those that SHA256SUMS lists", b"another")
    changes("install.sh", "are not those that SHA256SUMS lists", (small / "install.sh").read_bytes() + b"\n")
    changes("SHA256SUMS", "the signature of SHA256SUMS is wrong", b"")
    changes("SHA256SUMS.sig", "the signature of SHA256SUMS is wrong", bytes(64))
    changes("apt/dists/stable/InRelease", "the signature of the apt repository is wrong", b"Origin: somebody")
    changes("apt/dists/stable/Release", "the signed list of the apt repository is another", b"SHA256:\n")
    changes(f"apt/dists/stable/main/binary-{ARCHITECTURE}/Packages.gz", "is not the file that the apt repository lists", b"")
    changes(f"apt/pool/main/m/millrace/{package.name}", "is not the file that the apt repository lists", b"")
    (small / "notes.txt").write_text("")
    refused(*check, because="notes.txt is not a file of a release")
    (small / "notes.txt").rename(small / "millrace-9.9.9-linux-x86_64.tar.gz")
    refused(*check, because="packages of 2 versions")
    (small / "millrace-9.9.9-linux-x86_64.tar.gz").unlink()
    assert "is complete" in run(*check).stdout
    refused(sys.executable, SIGN, "key", key, because="exists")


def test_what_is_not_signed_is_no_release(packages: Path) -> None:
    refused(sys.executable, SIGN, "check", packages, because="it is not signed")
    refused(sys.executable, SIGN, "check", packages / "apt", because="has no packages")
    refused(sys.executable, SIGN, "check", packages / "elsewhere", because="there is no directory")
    assert len((packages / "SHA256SUMS").read_text().splitlines()) == 4
