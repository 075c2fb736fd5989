"""The first minute: the demo, in the browser alone, on a laptop and on a phone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import PATIENCE_S, ROOT, SCREENSHOTS, Opens, faults
from playwright.sync_api import expect

# So many hours are replayed at once: the day on which a thermometer was stuck is among them.
HOURS = 400


class Demo:
    """A running demo, once it has estimated every hour of its replay."""

    def __init__(self, place: Path) -> None:
        binary = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        command = [str(binary), "--json", "demo", "demo", "--hours", str(HOURS), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        # Nobody reads the estimates that it prints.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.url, self.name = told["dashboard"], told["namespace"]
        self.ns = self.url.removesuffix("/ui") + f"/v1/namespaces/{self.name}"
        self.right = place / "demo/right.jsonl"
        waits = threading.Event()
        while (self.get("logs/estimate").get("latest") or 0) < HOURS - 24:
            waits.wait(0.1)

    def get(self, path: str) -> Any:
        return requests.get(f"{self.ns}/{path}", timeout=PATIENCE_S).json()

    def value(self, log: str, seqno: int) -> dict[str, Any]:
        return json.loads(self.get(f"logs/{log}/records?from={seqno}&count=1")["records"][0]["data"])


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path)
    yield running
    running.process.kill()
    running.process.wait(PATIENCE_S)


@pytest.mark.parametrize("phone", [True, False], ids=["phone", "laptop"])
def test_from_a_wrong_estimate_to_its_cause_its_repair_and_back(demo: Demo, opens: Opens, phone: bool) -> None:
    kind = "phone" if phone else "laptop"
    corrections = [json.loads(line) for line in demo.right.read_text().splitlines()]
    # Late on the bad day, three hours of it are in each smoothed value.
    hour = corrections[20]["seqno"]
    number = hour - demo.value("estimate", 1)["hour"] + 1
    wrong = demo.value("estimate", number)
    with opens(demo.url, phone=phone) as page:
        # The only namespace is opened, and shows the newest estimate.
        page.locator(".values a", has_text="estimate").click()
        page.get_by_label("Go to").fill(str(number))
        page.get_by_label("Go to").press("Enter")
        expect(page.locator(".one")).to_contain_text(str(wrong["celsius"]))
        # Why is it what it is? It was computed from a smoothed value of Kennedy, and that from its readings.
        page.get_by_role("link", name="Causes and effects").click()
        came = page.locator(".card", has_text="What it came from")
        came.get_by_role("link", name=f"smooth/jfk@{hour}", exact=True).first.click()
        page.get_by_role("link", name="Causes and effects").click()
        came.get_by_role("link", name=f"raw/jfk@{hour}", exact=True).first.click()
        # The thermometer says the same all day.
        stuck = demo.value("raw%2Fjfk", hour)["celsius"]
        assert {demo.value("raw%2Fjfk", it["seqno"])["celsius"] for it in corrections} == {stuck}
        expect(page.locator(".one")).to_contain_text(str(stuck))
        page.screenshot(path=SCREENSHOTS / f"first-minute-cause-{kind}.png")
        page.get_by_role("link", name="Correct it").click()
        # What it should have said is in a file.
        page.get_by_label("Values from a file").set_input_files(demo.right)
        others = [it for it in corrections if json.loads(it["value"])["celsius"] != stuck]
        expect(page.locator(".card", has_text="What they should be")).to_contain_text(f"{len(others)} corrections")
        page.get_by_label("Reason, for people who read it later").fill("stuck thermometer")
        page.get_by_role("button", name="See what it would change").click()
        planned = page.locator(".planned")
        expect(planned.get_by_role("region", name="Records that may change")).to_contain_text("estimate")
        assert demo.value("estimate", number) == wrong, "a plan changes nothing"
        page.screenshot(path=SCREENSHOTS / f"first-minute-plan-{kind}.png", full_page=True)
        assert faults(page) == []
        page.get_by_role("button", name="Replay what depends on them").click()
        apply = page.get_by_role("button", name="Apply", exact=True)
        expect(apply).to_be_disabled()
        repair = re.search(r"/repairs/(\d+)$", page.url)
        assert repair
        page.get_by_label(f"To apply it, type {repair[1]}").fill(repair[1])
        apply.click()
        back = page.get_by_role("button", name="Roll back")
        expect(back).to_be_visible()
        right = demo.value("estimate", number)
        assert right["celsius"] != wrong["celsius"] and demo.value("raw%2Fjfk", hour) == json.loads(corrections[20]["value"])
        page.screenshot(path=SCREENSHOTS / f"first-minute-applied-{kind}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= (390 if phone else 1280)
        # And back.
        back.click()
        expect(page.locator("main")).to_contain_text("rolls back repair")
        waits = threading.Event()
        while demo.value("estimate", number) != wrong:
            waits.wait(0.1)
        assert demo.value("raw%2Fjfk", hour)["celsius"] == stuck
