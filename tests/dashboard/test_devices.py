"""Devices: a simulated one that comes and goes, is asked, gets a command and firmware; and one that is refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, SCREENSHOTS, Host, Opens, faults
from playwright.sync_api import Page, expect

BUILD = ROOT / "device/build"
Starts = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def starts(own_host: Host) -> Iterator[Starts]:
    """Starts simulated devices, which end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
        assert (BUILD / program).is_file(), "build it with `make -C device`"
        command = [str(own_host.binary), "device", "sim", str(BUILD / program), *arguments]
        running.append(subprocess.Popen(command, cwd=own_host.place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
        return running[-1]

    yield start
    for process in running:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def provision(host: Host, name: str) -> str:
    host.run("device", "provision", name, "--host", host.url.removeprefix("http://"))
    return f"{name}.identity"


def picture(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.mark.parametrize("phone", [True, False], ids=["phone", "laptop"])
def test_a_device_is_shown_asked_and_told(own_host: Host, opens: Opens, starts: Starts, phone: bool) -> None:
    device = starts("station", "--identity", provision(own_host, "kitchen"), "--", "--records", "30", "--linger", "600000")
    with opens(f"{own_host.url}/ui/farm/devices", phone=phone) as page:
        row = page.get_by_role("region", name="Devices").locator("tbody tr")
        expect(row).to_contain_text("connected")
        expect(row.locator("[data-name=records]")).to_have_text("60")
        assert faults(page) == []
        picture(page, f"devices-{'phone' if phone else 'light'}")
        row.get_by_role("link", name="kitchen").click()
        logs = page.get_by_role("region", name="Logs")
        raw = logs.locator("tbody tr").filter(has_text="kitchen/raw")
        expect(raw.locator("[data-name='newest here']")).to_have_text("30")
        # What the device has itself.
        raw.get_by_role("button", name="Ask the device").click()
        expect(page.get_by_text("The newest record in the device")).to_contain_text("kitchen/raw@30")
        newest = own_host.run("log", "get", "kitchen/raw", "30")
        expect(page.locator("pre.value-box")).to_have_text(str(float(newest)))
        # A command, at once.
        command = page.locator(".card").filter(has_text="Send a command")
        command.get_by_label("Record").fill("every=60")
        command.get_by_label("now, or not at all").check()
        command.get_by_role("button", name="Send").click()
        expect(command.get_by_role("status")).to_have_text("The device has it as record 1")
        expect(logs.locator("tbody tr").filter(has_text="kitchen/applied")).to_be_visible()
        assert faults(page) == []
        picture(page, f"device-{'phone' if phone else 'light'}")
        assert page.evaluate("document.documentElement.scrollWidth") <= (390 if phone else 1280)
        # It is gone, and a command waits for it.
        stop(device)
        expect(page.locator(".state")).to_contain_text("ended")
        page.get_by_role("button", name="Again").click()
        expect(page.get_by_role("alert")).to_contain_text("MR6360")
        page.get_by_role("button", name="Close").click()
        command.get_by_label("Record").fill("every=30")
        command.get_by_role("button", name="Send").click()
        expect(command.get_by_role("alert")).to_contain_text("MR6360")
        command.get_by_label("now, or not at all").uncheck()
        command.get_by_role("button", name="Send").click()
        expect(command.get_by_role("status")).to_have_text("It waits for the device")
        expect(page.get_by_text("1 waiting")).to_be_visible()


def test_firmware_is_sent_and_a_bad_one_reverted(own_host: Host, opens: Opens, starts: Starts) -> None:
    slots = own_host.place / "slots"
    slots.mkdir()
    shutil.copy(BUILD / "station", slots / "slot-0")
    bad = own_host.place / "bad.bin"
    bad.write_text("#!/bin/sh\nkill -SEGV $$\n")
    starts("boot", "--identity", provision(own_host, "attic"), "--", "--slots", str(slots), "--linger", "600000")
    with opens(f"{own_host.url}/ui/farm/devices/attic") as page:
        # The first answer may come before the device has sent anything.
        card = page.locator(".card").filter(has=page.get_by_role("heading", name="Firmware"))
        expect(card).to_be_visible()
        for image, version, state in [(BUILD / "station-2", "2", "confirmed"), (bad, "3", "reverted")]:
            card.get_by_label("Image").set_input_files(image)
            card.get_by_label("Version").fill(version)
            card.get_by_role("button", name="Update").click()
            expect(card.locator(".facts")).to_contain_text(f"to {version}")
            expect(card.locator(".state")).to_have_text(state)
        expect(card.get_by_role("alert")).to_contain_text("MR6348")
        expect(card.locator(".facts div").first).to_contain_text("2")
        assert faults(page) == []
        picture(page, "device-firmware")


def test_a_refused_device_is_named_with_what_to_do(own_host: Host, opens: Opens, starts: Starts) -> None:
    with opens(f"{own_host.url}/ui/farm/devices") as page:
        expect(page.get_by_text("No device has sent records")).to_be_visible()
        assert faults(page) == []
        # Its capability is revoked before it connects.
        identity = provision(own_host, "cellar")
        own_host.run("device", "rm", "cellar")
        starts("station", "--identity", identity, "--", "--records", "5", "--linger", "600000")
        refusal = page.get_by_role("alert")
        expect(refusal).to_contain_text("a connection that names the capability of cellar", ignore_case=True)
        expect(refusal).to_contain_text("MR6138")
        assert faults(page) == []
        picture(page, "device-refused")
