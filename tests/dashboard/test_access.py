"""Who may see what, while a page is open, and for a host elsewhere."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

from conftest import PATIENCE_S, Host, Opens, faults
from playwright.sync_api import expect


def test_a_screen_says_that_its_capability_has_ended(own_host: Host, opens: Opens, tmp_path: Path) -> None:
    own_host.append("raw/cellar", b"12.5")
    file = tmp_path / "reader.cap"
    # A host says the same of one that has expired and of one that was revoked, and only the latter has no clock.
    own_host.run("cap", "issue", "--allow", "read,observe=namespace", "--expires", "1h", "--out", str(file))
    link = own_host.run("dashboard", "--capability", str(file)).strip()
    with opens(link) as page:
        expect(page.locator(".tile", has_text="Journal")).to_contain_text("B")
        expect(page.get_by_role("alert")).to_have_count(0)
        own_host.run("cap", "revoke", "--file", str(file))
        expect(page.get_by_role("alert").first).to_contain_text("Your access has ended")
        assert faults(page) == []
        # Each screen says so, and not that there is nothing.
        for screen in ["Runs", "Functions", "Map", "Failures"]:
            page.get_by_role("navigation", name="Screens").get_by_role("link", name=screen, exact=True).click()
            expect(page.get_by_role("heading", name=screen).first).to_be_visible()
            expect(page.get_by_role("alert").first).to_contain_text("Your access has ended")
        # Another capability is taken without loading the page again.
        other = tmp_path / "other.cap"
        own_host.run("cap", "issue", "--allow", "read,observe=namespace", "--out", str(other))
        page.get_by_role("button", name="Access").click()
        page.get_by_label("A capability").fill(other.read_text().strip())
        page.get_by_role("button", name="Use it in this tab").click()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_dashboard_of_a_host_elsewhere_is_served_here(own_host: Host, opens: Opens, tmp_path: Path) -> None:
    own_host.append("raw/kitchen", {"celsius": 21})
    own_host.idle()
    own_host.stop()
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    own_host.start(f"0.0.0.0:{port}")
    invited = own_host.run("invite", "laptop", "--allow", "read,append,observe=namespace", "--address", f"127.0.0.2:{port}", "--served-as", "farm")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)}
    joined = subprocess.run([own_host.binary, "join", "-"], input=invited, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert joined.returncode == 0, joined.stderr
    command = [str(own_host.binary), "--json", "-n", f"mr://127.0.0.2:{port}/farm", "dashboard"]
    pages = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert pages.stdout is not None
        link = json.loads(pages.stdout.readline())["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ui/farm#key=[0-9a-f]{64}", link)
        with opens(link) as page:
            expect(page.locator(".values li", has_text="mean/kitchen")).to_contain_text("21")
            assert "key=" not in page.url
            # What changes is told over the same way.
            own_host.append("raw/kitchen", {"celsius": 24})
            expect(page.locator(".values li", has_text="mean/kitchen")).to_contain_text("24")
            assert "mr1_" not in page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])")
            page.get_by_role("button", name="Access").click()
            expect(page.get_by_role("dialog")).to_contain_text("with the capability that it has for the host")
            page.keyboard.press("Escape")
            page.goto(page.url.replace("/ui/farm", "/ui/farm/logs/raw/cellar"))
            page.get_by_label("Value", exact=True).fill("13.5")
            page.get_by_role("button", name="Append", exact=True).click()
            expect(page.locator(".record-row .value")).to_have_text("13.5")
        # Without the key of the link, the same address shows nothing.
        with opens(link.split("#")[0]) as page:
            expect(page.get_by_role("alert").first).to_contain_text("MR6090")
        with opens(link) as page:
            expect(page.locator(".tile", has_text="Journal")).to_contain_text("B")
            pages.kill()
            pages.wait(PATIENCE_S)
            expect(page.get_by_role("alert").first).to_contain_text("millrace dashboard")
    finally:
        pages.kill()
        pages.wait(PATIENCE_S)
