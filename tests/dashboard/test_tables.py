"""Tables: keys and values, versions, changes that nobody else may have overtaken, and what a key may contain."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from conftest import PATIENCE_S, SCREENSHOTS, Host, Opens, faults
from playwright.sync_api import expect

MARKUP = "<img src=x onerror=\"document.title='taken'\">"


def put(host: Host, table: str, key: str | bytes, value: str | bytes) -> None:
    answer = requests.put(f"{host.ns}/tables/{table}/keys/{quote(key, safe='')}", data=value, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("phone", [True, False], ids=["phone", "laptop"])
def test_keys_are_shown_with_their_versions(own_host: Host, opens: Opens, phone: bool) -> None:
    own_host.run("table", "create", "class/grades")
    for score in [7, 8]:
        own_host.run("table", "put", "class/grades", "alice", json.dumps({"score": score}))
    own_host.run("table", "put", "class/grades", "bob", "5", "--ttl", "1h")
    with opens(f"{own_host.url}/ui/farm/tables", phone=phone) as page:
        expect(page.get_by_role("region", name="Tables")).to_contain_text("class/grades")
        assert faults(page) == []
        page.get_by_role("link", name="class/grades").click()
        keys = page.get_by_role("region", name="Keys")
        expect(keys.locator("tbody tr")).to_have_count(2)
        keys.get_by_role("link", name="alice").click()
        versions = page.get_by_role("region", name="Versions")
        expect(versions.locator("tbody tr")).to_have_count(2)
        expect(page.locator(".one pre")).to_have_text(json.dumps({"score": 8}, indent=2))
        # A change elsewhere is shown without a load of the page.
        own_host.run("table", "put", "class/grades", "alice", '{"score": 9}')
        expect(versions.locator("tbody tr")).to_have_count(3)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"table-{'phone' if phone else 'light'}.png")
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= (390 if phone else 1280)
        # The log of the table has the same, and cannot be appended to.
        versions.get_by_role("link", name="2", exact=True).click()
        expect(page.locator(".one h2")).to_have_text("class/grades@2")
        expect(page.get_by_role("link", name="The table and its keys")).to_be_visible()
        expect(page.get_by_text("Append a record")).to_have_count(0)
        expect(page.get_by_text("Correct it")).to_have_count(0)


def test_a_change_does_not_overtake_that_of_another(own_host: Host, opens: Opens) -> None:
    own_host.run("table", "create", "grades")
    own_host.run("table", "put", "grades", "alice", '{"score": 7}')
    with opens(f"{own_host.url}/ui/farm/tables/grades?key=alice") as page:
        one = page.locator(".one")
        one.get_by_role("button", name="Change").click()
        one.get_by_role("textbox").fill('{"score": 10}')
        own_host.run("table", "put", "grades", "alice", '{"score": 8}')
        one.get_by_role("button", name="Put").click()
        expect(one.get_by_role("alert")).to_contain_text("MR7300")
        assert own_host.run("table", "get", "grades", "alice") == '{"score": 8}\n'
        one.get_by_role("button", name="Keep the old value").click()
        expect(one.locator("pre")).to_have_text(json.dumps({"score": 8}, indent=2))
        one.get_by_role("button", name="Change").click()
        one.get_by_role("textbox").fill('{"score":')
        one.get_by_role("button", name="Put").click()
        expect(one.get_by_role("alert")).to_contain_text("MR7304")
        one.get_by_role("textbox").fill('{"score": 10}')
        # The command beside it does the same.
        command = one.locator(".cmd code").last.inner_text()
        assert command == "millrace table put grades alice '{\"score\": 10}' --if-version 2"
        one.get_by_role("button", name="Put").click()
        expect(one.get_by_role("region", name="Versions").locator("tbody tr")).to_have_count(3)
        assert own_host.run("table", "get", "grades", "alice") == '{"score": 10}\n'
        one.get_by_role("button", name="Delete").click()
        one.get_by_role("button", name="Yes").click()
        expect(one).to_contain_text("The key was deleted.")
        assert own_host.get("tables/grades")["entries"] == []


def test_many_keys_are_read_page_by_page(own_host: Host, opens: Opens) -> None:
    own_host.run("table", "create", "many", "--codec", "text")
    with requests.Session() as session:
        for number in range(230):
            session.put(f"{own_host.ns}/tables/many/keys/k{number:03}?durability=memory", data=str(number), timeout=PATIENCE_S).raise_for_status()
    with opens(f"{own_host.url}/ui/farm/tables/many") as page:
        rows = page.get_by_role("region", name="Keys").locator("tbody tr")
        expect(rows).to_have_count(100)
        for first, count in [("k100", 100), ("k200", 30)]:
            page.get_by_role("link", name="Next 100 keys").click()
            expect(rows.first).to_contain_text(first)
            expect(rows).to_have_count(count)
        expect(page.get_by_role("link", name="Next 100 keys")).to_have_count(0)
        page.get_by_label("Keys that begin with").fill("k22")
        expect(rows).to_have_count(10)
        expect(rows.first).to_contain_text("k220")
        page.get_by_label("Keys that begin with").fill("none")
        expect(page.locator("main")).to_contain_text("No key begins like this")


def test_keys_are_anybodys_bytes(own_host: Host, opens: Opens) -> None:
    own_host.run("table", "create", "odd", "--keys", "bytes", "--codec", "bytes")
    keys = [MARKUP, "a/b c?d#e%f", "..", "bytes:AAAA", "é" * 500, b"\xff\x00", "\u202egnp.exe"]
    for key in keys:
        if key == "..":
            own_host.run("table", "put", "odd", key, "folder")
        else:
            put(own_host, "odd", key, MARKUP)
    with opens(f"{own_host.url}/ui/farm/tables/odd") as page:
        links = page.get_by_role("region", name="Keys").locator("tbody a")
        expect(links).to_have_count(len(keys))
        expect(page.get_by_role("region", name="Keys")).to_contain_text("0xff00")
        for number in range(len(keys)):
            text = links.nth(number).inner_text()
            links.nth(number).click()
            expect(page.locator(".one h2")).to_have_text(text)
            if text == "..":
                expect(page.locator(".one")).to_contain_text("A browser cannot ask for this key")
            else:
                expect(page.locator(".one pre")).to_have_text(MARKUP)
            expect(links.nth(number)).to_have_attribute("aria-current", "true")
        assert page.locator("main img").count() == 0
        assert "taken" not in page.title()


def test_a_caller_without_the_right_is_told(own_host: Host, opens: Opens) -> None:
    own_host.run("table", "create", "grades")
    own_host.run("table", "put", "grades", "alice", "1")
    file = own_host.place / "reader.cap"
    own_host.run("cap", "issue", "--allow", "read=raw/", "--out", str(file))
    link = own_host.run("dashboard", "--capability", str(file)).strip()
    with opens(link) as page:
        page.goto(link.replace("/ui/farm", "/ui/farm/tables/grades"))
        expect(page.get_by_role("alert").first).to_contain_text("You may not see this")
        expect(page.locator("main")).not_to_contain_text("alice")


def test_a_replica_says_whose_it_is_and_how_far(own_host: Host, opens: Opens, tmp_path: Path) -> None:
    (tmp_path / "owner").mkdir()
    with Host.running(tmp_path / "owner") as owner:
        owner.run("table", "create", "grades")
        owner.run("table", "put", "grades", "alice", "7")
        address = f"mr://{owner.url.removeprefix('http://')}/farm/grades"
        own_host.run("table", "mirror", "grades", "--from", address)
        with opens(f"{own_host.url}/ui/farm/tables") as page:
            card = page.locator(".card", has_text="A replica of")
            expect(card).to_contain_text(address)
            expect(card.locator(".state")).to_have_text("following")
            assert faults(page) == []
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOTS / "replica-light.png")
            page.get_by_role("link", name="grades").click()
            expect(page.get_by_text("where it is changed")).to_be_visible()
            page.get_by_role("region", name="Keys").get_by_role("link", name="alice").click()
            expect(page.locator(".one pre")).to_have_text("7")
            # Its owner changes it.
            expect(page.get_by_text("Put a value")).to_have_count(0)
            for change in ["Change", "Delete"]:
                expect(page.locator(".one").get_by_role("button", name=change, exact=True)).to_have_count(0)
            page.goto(f"{own_host.url}/ui/farm/tables")
            owner.stop()
            expect(card.locator(".state")).not_to_have_text("following")
            owner.start()
