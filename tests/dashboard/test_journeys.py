"""What people do with the dashboard, from the first screen to the end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import requests
from conftest import PATIENCE_S, SCREENSHOTS, Host, Opens, faults
from playwright.sync_api import expect


def test_from_a_failure_to_its_retry(own_host: Host, opens: Opens) -> None:
    own_host.append("raw/kitchen", {"celsius": 41})
    own_host.idle()
    with opens(f"{own_host.url}/ui/") as page:
        # The only namespace is opened.
        page.locator(".problems").get_by_role("link", name="Failures").click()
        expect(page.get_by_role("heading", name="Failures")).to_be_visible()
        expect(page.locator("main")).to_contain_text("watch")
        page.locator("main tbody a.mono").first.click()
        expect(page.get_by_role("heading", name=re.compile("^Run "))).to_be_visible()
        # Text of a program stays text.
        expect(page.locator("main")).to_contain_text("the pager <b>refused</b> 41")
        (own_host.place / "functions.sh").write_text((own_host.place / "functions.sh").read_text().replace("-lt 40", "-lt 50"))
        own_host.run("up")
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("main")).to_contain_text("Retried as")
    own_host.idle()
    assert own_host.get("logs/alerts")["latest"] == 1


def test_from_a_correction_to_its_rollback(own_host: Host, opens: Opens) -> None:
    for celsius in [20, 35, 22]:
        own_host.append("raw/kitchen", {"celsius": celsius})
    own_host.idle()
    assert own_host.get("logs/alerts")["records"] == 1
    with opens(f"{own_host.url}/ui/farm/logs/raw/kitchen?at=2") as page:
        page.get_by_role("link", name="Correct it").click()
        page.get_by_label("New value of record 2").fill('{"celsius": 25}')
        page.get_by_label("Reason, for people who read it later").fill("the sun shone on it")
        page.get_by_role("button", name="See what it would change").click()
        planned = page.locator(".planned")
        expect(planned.get_by_role("region", name="Runs that would be replayed")).to_contain_text("mean")
        expect(planned.get_by_role("region", name="Records that may change")).to_contain_text("mean/kitchen")
        assert own_host.get("repairs")["repairs"] == [], "a plan opens no repair"
        assert faults(page) == []
        page.screenshot(path=SCREENSHOTS / "repair-plan.png", full_page=True)
        page.get_by_role("button", name="Replay what depends on them").click()
        apply = page.get_by_role("button", name="Apply", exact=True)
        expect(apply).to_be_disabled()
        changes = page.locator(".card", has_text="What it changes")
        expect(changes.locator("tbody tr")).to_have_count(3)
        expect(changes).to_contain_text("mean/kitchen@2")
        number = re.search(r"/repairs/(\d+)$", page.url)
        assert number
        # Nothing has changed yet.
        assert own_host.get("logs/mean%2Fkitchen/records?from=2&count=1")["records"][0]["data"] == '{"celsius": 35}'
        page.get_by_label(f"To apply it, type {number[1]}").fill(number[1])
        apply.click()
        back = page.get_by_role("button", name="Roll back")
        expect(back).to_be_visible()
        assert own_host.get("logs/mean%2Fkitchen/records?from=2&count=1")["records"][0]["data"] == '{"celsius": 25}'
        assert own_host.get("logs/alerts")["records"] in (0, 1), "its only record is void"
        assert own_host.get("logs/alerts/records")["records"] == []
        back.click()
        expect(page.locator("main")).to_contain_text("rolls back repair")


def test_a_repair_plots_the_field_that_it_changes(own_host: Host, opens: Opens) -> None:
    requests.put(f"{own_host.ns}/logs/pairs", timeout=PATIENCE_S).raise_for_status()
    for hour in [1, 2]:
        own_host.append("pairs", {"hour": hour, "celsius": 20 + hour})
    corrections = [{"seqno": hour, "data": json.dumps({"hour": hour, "celsius": 30 - hour})} for hour in [1, 2]]
    opened = {"do": "open", "log": "pairs", "corrections": corrections}
    answer = requests.post(f"{own_host.ns}/repairs", json=opened, timeout=PATIENCE_S)
    answer.raise_for_status()
    with opens(f"{own_host.url}/ui/farm/repairs/{answer.json()['repair']}") as page:
        compared = page.locator("figure.compare")
        expect(compared.locator("figcaption")).to_contain_text("celsius")
        lines = [compared.locator(f"path.{name}").get_attribute("d") for name in ["was", "line"]]
        assert lines[0] and lines[1] and lines[0] != lines[1]


def test_an_append_and_a_log_that_is_followed(own_host: Host, opens: Opens) -> None:
    with opens(f"{own_host.url}/ui/farm/logs/raw/cellar") as page:
        page.get_by_label("Value", exact=True).fill("13.5")
        page.get_by_role("button", name="Append", exact=True).click()
        expect(page.locator(".record-row .value")).to_have_text("13.5")
        page.get_by_role("button", name="Follow").click()
        expect(page.get_by_role("button", name="Following")).to_be_visible()
        own_host.append("raw/cellar", b"14.5")
        expect(page.locator(".record-row:not(.head-row)").first.locator(".value")).to_have_text("14.5")


def test_a_host_that_is_gone_and_comes_back(own_host: Host, opens: Opens) -> None:
    with opens(f"{own_host.url}/ui/farm") as page:
        expect(page.locator(".tile", has_text="Journal")).to_contain_text("B")
        page.route("**/v1/**", lambda route: route.abort())
        expect(page.get_by_role("alert").first).to_contain_text("The host does not answer")
        page.unroute("**/v1/**")
        expect(page.get_by_role("alert")).to_have_count(0)


def test_a_narrow_capability_says_what_it_lacks(own_host: Host, opens: Opens, tmp_path: Path) -> None:
    own_host.append("raw/cellar", b"12.5")
    file = tmp_path / "reader.cap"
    own_host.run("cap", "issue", "--read", "raw/cellar", "--out", str(file))
    link = own_host.run("dashboard", "--capability", str(file)).strip()
    assert link.startswith(f"{own_host.url}/ui/farm#cap=mr1_")
    with opens(link) as page:
        expect(page.locator("main")).to_contain_text("You may not see this")
        assert "cap=" not in page.url, "the capability is not in the address that the browser keeps"
        expect(page.locator("main")).to_contain_text("MR6132")
        for screen in ["map", "runs", "failures", "functions", "repairs", "devices", "links", "objects", "capabilities"]:
            page.goto(f"{own_host.url}/ui/farm/{screen}")
            expect(page.get_by_role("alert").first).to_contain_text("You may not see this")
        page.goto(f"{own_host.url}/ui/farm/logs/raw/cellar")
        expect(page.locator(".record-row .value")).to_have_text("12.5")
        # What it may not do, it is told.
        page.get_by_label("Value", exact=True).fill("99")
        page.get_by_role("button", name="Append", exact=True).click()
        expect(page.locator(".act")).to_contain_text("MR6132")
        page.get_by_role("button", name="Access").click()
        page.get_by_role("button", name="Forget it").click()
        page.goto(f"{own_host.url}/ui/farm/runs")
        expect(page.locator("main")).to_contain_text("There is no such run")
    assert own_host.get("logs/raw%2Fcellar")["latest"] == 1


def test_a_plan_of_other_values_is_made_anew(own_host: Host, opens: Opens) -> None:
    own_host.append("raw/cellar", b"12.5")
    with opens(f"{own_host.url}/ui/farm/repairs/new?log=raw/cellar&seqno=1") as page:
        see = page.get_by_role("button", name="See what it would change")
        expect(see).to_be_disabled()
        page.get_by_label("New value of record 1").fill("13.5")
        see.click()
        expect(page.locator(".planned")).to_contain_text("No run has used the records")
        page.get_by_label("New value of record 1").fill("14.5")
        expect(page.locator(".planned")).to_have_count(0)
        expect(page.get_by_role("button", name="Replay what depends on them")).to_have_count(0)


def test_a_link_with_a_code_opens_the_dashboard_once(own_host: Host, opens: Opens) -> None:
    link = own_host.run("dashboard", "--code").strip()
    assert re.fullmatch(re.escape(own_host.url) + "/ui/farm#code=[0-9a-f]{32}", link)
    with opens(link) as page:
        expect(page.locator(".tile", has_text="Journal")).to_contain_text("B")
        assert "code=" not in page.url
        token = page.evaluate("sessionStorage.getItem('millrace.capability')")
        assert token.startswith("mr1_")
        page.get_by_role("button", name="Access").click()
        expect(page.get_by_role("dialog")).to_contain_text("This tab uses a capability")
    with opens(link) as page:
        expect(page.get_by_role("alert").first).to_contain_text("MR6084")
    # The capability has an entry in the audit log, and can be revoked.
    assert "dashboard" in own_host.run("cap", "audit")


def test_a_capability_is_issued_used_and_revoked(own_host: Host, opens: Opens) -> None:
    own_host.append("raw/cellar", b"12.5")
    with opens(f"{own_host.url}/ui/farm/capabilities") as page:
        page.get_by_label("On", exact=True).fill("raw/cellar")
        page.get_by_label("Label").fill("<b>reader</b>")
        page.get_by_role("button", name="Issue", exact=True).click()
        link = page.get_by_label("Link to the dashboard").input_value()
        assert link.startswith(f"{own_host.url}/ui/farm#cap=mr1_")
        row = page.get_by_role("region", name="Capabilities").locator("tbody tr")
        expect(row).to_contain_text("<b>reader</b>")
        assert faults(page) == []
        with opens(link.replace("/ui/farm#", "/ui/farm/logs/raw/cellar#")) as reader:
            expect(reader.locator(".record-row .value")).to_have_text("12.5")
            row.get_by_role("button", name="Revoke").click()
            row.get_by_role("button", name="Yes").click()
            expect(row).to_contain_text("revoked")
            reader.reload()
            expect(reader.get_by_role("alert").first).to_contain_text("MR61")


def test_one_connection_tells_what_changes(own_host: Host, opens: Opens) -> None:
    own_host.append("raw/kitchen", {"celsius": 20})
    own_host.idle()
    with opens(f"{own_host.url}/ui/farm") as page:
        with page.expect_response("**/live?*"):
            page.reload()
        expect(page.locator(".values li", has_text="mean/kitchen")).to_contain_text("20")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        own_host.append("raw/kitchen", {"celsius": 23})
        expect(page.locator(".values li", has_text="mean/kitchen")).to_contain_text("23")
        assert not [url for url in asked if url.endswith("/functions")], "the list is not asked for again"
        # Without the connection, screens ask as before.
        page.route("**/live?*", lambda route: route.abort())
        own_host.stop()
        expect(page.get_by_role("alert").first).to_contain_text("The host does not answer")
        port = own_host.url.rsplit(":", 1)[1]
        own_host.start("127.0.0.1:" + port)
        own_host.append("raw/kitchen", {"celsius": 26})
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator(".values li", has_text="mean/kitchen")).to_contain_text("26")
        # And it comes back.
        with page.expect_response("**/live?*"):
            page.unroute("**/live?*")
        own_host.append("raw/kitchen", {"celsius": 27})
        expect(page.locator(".values li", has_text="mean/kitchen")).to_contain_text("27")


def test_the_pages_need_no_capability_and_tell_nothing(host: Host) -> None:
    answers = [requests.get(f"{host.url}/ui/{path}", timeout=PATIENCE_S) for path in ["", "farm", "nobody/logs/x", "farm/logs/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o"]]
    assert len({answer.content for answer in answers}) == 1
    policy = answers[0].headers["content-security-policy"]
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]:
        assert part in policy
    assert answers[0].headers["x-content-type-options"] == "nosniff"
    assert answers[0].headers["referrer-policy"] == "no-referrer"
    assert answers[0].headers["cross-origin-opener-policy"] == "same-origin"
    root = requests.get(host.url, headers={"accept": "text/html"}, allow_redirects=False, timeout=PATIENCE_S)
    assert (root.status_code, root.headers["location"]) == (303, "/ui/")
    assert "text/plain" in requests.get(host.url, timeout=PATIENCE_S).headers["content-type"]


def test_the_command_prints_where_it_is(host: Host) -> None:
    assert host.run("dashboard").strip() == f"{host.url}/ui/farm"
