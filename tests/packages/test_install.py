"""install.sh: what it installs, and that it changes nothing unless the release is the signed one and complete."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from conftest import MACHINE, PATIENCE_S, ROOT, Home, linked, run, served, sign, small_release


@pytest.fixture
def release(tmp_path: Path, key: Path) -> Path:
    return small_release(tmp_path / "release", key, "1.2.3")


def tarball(release: Path) -> Path:
    (found,) = release.glob("*.tar.gz")
    return found


def test_the_program_of_the_packages_is_installed_and_works(packages: Path, key: Path, home: Home, tmp_path: Path) -> None:
    release = linked(packages, tmp_path / "signed")
    sign(release, key, release)
    said = home.installs(release / "install.sh")
    bin_ = home.place / ".local/bin"
    assert f'export PATH="{bin_}:$PATH"' in said, said
    assert sorted(path.name for path in home.place.iterdir()) == [".local"]
    assert sorted(path.name for path in (home.place / ".local").iterdir()) == ["bin", "share"]
    for file in ["man/man1/millrace.1.gz", "doc/millrace/README.md", "doc/millrace/LICENSE", "bash-completion/completions/millrace"]:
        assert (home.place / ".local/share" / file).stat().st_size > 0, file
    environment = {**home.environment(), "PATH": f"{bin_}:{home.tools}", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    farm = tmp_path / "farm"
    farm.mkdir()
    run(bin_ / "millrace", "init", "--bare", cwd=farm, env=environment)
    run(bin_ / "millrace", "log", "create", "raw", cwd=farm, env=environment)
    run(bin_ / "millrace", "log", "append", "raw", "21.5", cwd=farm, env=environment)
    assert run(bin_ / "millrace", "log", "get", "raw", cwd=farm, env=environment).stdout == "21.5\n"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_release_in_a_directory_is_installed(release: Path, home: Home, scheme: str) -> None:
    home.installs(release / "install.sh", f"{scheme}{release}")
    assert home.version() == "1.2.3"


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_a_release_of_a_web_server_is_installed(release: Path, home: Home, client: str) -> None:
    (home.tools / "curl").unlink()
    home.tool(client)
    with served(release) as (address, asked):
        home.installs(release / "install.sh", f"{address}/")
        assert home.version() == "1.2.3"
        assert asked == ["/SHA256SUMS", "/SHA256SUMS.sig", f"/{tarball(release).name}"]
        gone = home.refuses("could not be downloaded", release / "install.sh", f"{address}/elsewhere")
        assert "MILLRACE_FROM" in gone


def test_without_curl_and_wget_only_a_directory_can_be_used(release: Path, home: Home) -> None:
    (home.tools / "curl").unlink()
    home.refuses("curl (or wget) is missing", release / "install.sh", "http://127.0.0.1:9")
    home.installs(release / "install.sh")


@pytest.mark.parametrize("tool", ["openssl", "sha256sum", "tar", "gzip"])
def test_a_missing_tool_is_named(release: Path, home: Home, tool: str) -> None:
    (home.tools / tool).unlink()
    home.refuses(f"{tool} is missing", release / "install.sh")


def test_an_openssl_that_cannot_verify_is_named(release: Path, home: Home) -> None:
    home.fake("openssl", 'case $1 in version) echo "OpenSSL 1.1.1k" ;; *) echo "Usage: pkeyutl"; exit 1 ;; esac')
    home.refuses("OpenSSL 1.1.1k cannot verify the signature", release / "install.sh")


def test_a_changed_package_is_refused(release: Path, home: Home) -> None:
    home.installs(release / "install.sh")
    data = bytearray(tarball(release).read_bytes())
    data[len(data) // 2] ^= 1
    tarball(release).write_bytes(data)
    home.refuses("the checksum of", release / "install.sh")


def test_a_changed_list_of_checksums_is_refused(release: Path, home: Home) -> None:
    tarball(release).write_bytes(b"another program")
    digest = run("sha256sum", tarball(release)).stdout.split()[0]
    (release / "SHA256SUMS").write_text(f"{digest}  {tarball(release).name}\n")
    home.refuses("the signature of", release / "install.sh")


def test_a_changed_or_missing_signature_is_refused(release: Path, home: Home) -> None:
    signature = release / "SHA256SUMS.sig"
    data = bytearray(signature.read_bytes())
    data[0] ^= 1
    signature.write_bytes(data)
    home.refuses("the signature of", release / "install.sh")
    signature.write_bytes(b"")
    home.refuses("the signature of", release / "install.sh")
    signature.unlink()
    home.refuses("could not be downloaded", release / "install.sh")


def test_a_release_that_another_key_signed_is_refused(release: Path, home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", other)
    forged = small_release(tmp_path / "forged", other, "9.9.9")
    home.refuses("the signature of", release / "install.sh", forged)
    # Whoever trusts that key can name it.
    found = next(line for line in (forged / "install.sh").read_text().splitlines() if line.startswith("RELEASE_KEY="))
    home.variables["MILLRACE_KEY"] = found.removeprefix("RELEASE_KEY='").removesuffix("'")
    home.installs(release / "install.sh", forged)
    assert home.version() == "9.9.9"


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_an_interrupted_download_changes_nothing(release: Path, home: Home, client: str) -> None:
    (home.tools / "curl").unlink()
    home.tool(client)
    home.installs(release / "install.sh")

    def half(request: BaseHTTPRequestHandler, data: bytes) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data[: len(data) // 2])

    with served(release, half) as (address, _):
        home.refuses("could not be downloaded completely", release / "install.sh", address)


def test_a_server_that_never_ends_cannot_fill_the_disk(release: Path, home: Home) -> None:
    script = release / "install.sh"
    assert "\nFILE_MAX_BLOCKS=1000000\n" in script.read_text()
    script.write_text(script.read_text().replace("FILE_MAX_BLOCKS=1000000", "FILE_MAX_BLOCKS=4000"))
    home.installs(script)
    ended = threading.Event()

    def endless(request: BaseHTTPRequestHandler, _: bytes) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            # Far more than what is accepted, should nothing stop it.
            for _ in range(200):
                request.wfile.write(bytes(1 << 20))
        except OSError:
            ended.set()

    with served(release, endless) as (address, _):
        home.refuses("could not be downloaded completely", script, address)
        assert ended.wait(PATIENCE_S)


def test_an_installation_that_is_stopped_changes_nothing(release: Path, home: Home) -> None:
    home.installs(release / "install.sh")
    before = home.files()
    began, end = threading.Event(), threading.Event()

    def stall(request: BaseHTTPRequestHandler, data: bytes) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        began.set()
        end.wait(PATIENCE_S)

    with served(release, stall) as (address, _):
        environment = {**home.environment(), "MILLRACE_FROM": address}
        stopped = subprocess.Popen([home.tools / "sh", release / "install.sh"], env=environment, start_new_session=True)
        assert began.wait(PATIENCE_S)
        # A terminal sends the signal to all processes of the command.
        os.killpg(stopped.pid, signal.SIGINT)
        assert stopped.wait(PATIENCE_S) != 0
        end.set()
    assert home.files() == before and home.version() == "1.2.3"


def test_of_a_script_that_was_cut_off_nothing_runs(release: Path, home: Home, tmp_path: Path) -> None:
    script = (release / "install.sh").read_bytes()
    whole = script.rindex(b"main")
    for end in [*range(0, whole, 97), whole]:
        (tmp_path / "cut.sh").write_bytes(script[:end])
        home.install(tmp_path / "cut.sh")
        assert home.files() == {}, f"the first {end} bytes"


def test_other_machines_and_systems_are_refused(release: Path, home: Home) -> None:
    home.fake("uname", 'case $1 in -s) echo Linux ;; *) echo riscv64 ;; esac')
    home.refuses("not for riscv64", release / "install.sh")
    home.fake("uname", "echo Darwin")
    home.refuses("runs on Linux only; this is Darwin", release / "install.sh")
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]
    home.fake("uname", f'case $1 in -s) echo Linux ;; *) echo {other} ;; esac')
    home.refuses(f"has no package for {other}", release / "install.sh")


def test_a_program_that_does_not_run_here_is_refused(key: Path, home: Home, tmp_path: Path) -> None:
    release = small_release(tmp_path / "release", key, "1.2.3", prints="1.2.4")
    home.refuses("does not run on this machine", release / "install.sh")


def test_an_older_version_is_replaced_and_a_newer_one_stays(key: Path, home: Home, tmp_path: Path) -> None:
    nine, ten = (small_release(tmp_path / version, key, version) for version in ["0.9.0", "0.10.0"])
    home.installs(nine / "install.sh")
    home.installs(ten / "install.sh")
    assert home.version() == "0.10.0"
    refusal = home.refuses("millrace 0.10.0 in", nine / "install.sh")
    assert f"remove {home.millrace}" in refusal
    # The remedy works.
    home.millrace.unlink()
    home.installs(nine / "install.sh")
    assert home.version() == "0.9.0"
    # What lies there and is no program is replaced.
    home.millrace.write_text("")
    home.installs(ten / "install.sh")
    assert home.version() == "0.10.0"


def test_another_millrace_that_is_earlier_in_the_path_is_named(release: Path, home: Home) -> None:
    bin_ = home.place / ".local/bin"
    home.fake("millrace", "echo millrace 0.0.1")
    home.variables["PATH"] = f"{home.tools}:{bin_}"
    assert f"still runs {home.tools}/millrace" in home.installs(release / "install.sh")


def test_the_prefix_can_be_elsewhere(release: Path, home: Home, tmp_path: Path) -> None:
    home.variables["MILLRACE_PREFIX"] = str(tmp_path / "my place")
    home.installs(release / "install.sh")
    assert run(tmp_path / "my place/bin/millrace", "version").stdout == "millrace 1.2.3\n"
    assert home.files() == {}


def test_a_copy_of_no_release_needs_an_address_and_a_key(release: Path, home: Home) -> None:
    script = ROOT / "scripts/release/install.sh"
    home.refuses("set MILLRACE_FROM", script)
    home.refuses("set MILLRACE_KEY", script, release)
