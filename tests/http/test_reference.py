"""The reference is typed from top to bottom, as it stands."""

from __future__ import annotations

import re
import subprocess

from conftest import PATIENCE_S, ROOT, Host

PAGE = ROOT / "docs/reference/http.md"


def test_every_command_of_the_page_works(own_host: Host) -> None:
    # The page makes and removes the log itself; here a function is bound to it.
    own_host.run("function", "rm", "copy")
    own_host.run("log", "rm", "raw/kitchen")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 9
    # A failure of any command fails the script, and so does an answer that is an error.
    script = "set -euo pipefail\ncurl() { command curl -sS --fail-with-body -w '\\n' \"$@\"; }\nexport -f curl\n"
    script += "timeout() { local s=$1; shift 2; command timeout \"$s\" curl -sS \"$@\"; }\n" + "".join(blocks)
    script = script.replace("127.0.0.1:7070", f"127.0.0.1:{own_host.port}")
    done = subprocess.run(
        ["bash", "-c", script], cwd=own_host.place, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"seqno":1,' in done.stdout and 'id: ' in done.stdout and '"change":"removed"' in done.stdout
    assert '{"t": 21.5}' in done.stdout.replace('\\"', '"')
