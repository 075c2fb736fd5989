"""What is going on: tasks of executors, failures by group, and what a run prints."""

from __future__ import annotations

import re
from pathlib import Path

import millrace
import pytest
from conftest import SCREENSHOTS, Host, Opens, faults
from playwright.sync_api import expect

# `slow` prints a line, waits for a file beside it, and prints another one.
SLOW = """#!/bin/sh
cat >/dev/null
echo "it <b>begins</b>"
until [ -e "$GO" ]; do sleep 0.05; done
echo "it ends" >&2
"""


def test_what_a_run_prints_is_shown_as_it_comes(own_host: Host, opens: Opens, tmp_path: Path) -> None:
    go = tmp_path / "go"
    # Functions in a sandbox do not see the file.
    own_host.stop()
    own_host.start("127.0.0.1:0", "--sandbox", "none")
    (own_host.place / "slow.sh").write_text(SLOW.replace("$GO", str(go)))
    (own_host.place / "slow.sh").chmod(0o755)
    own_host.run("log", "create", "slow")
    own_host.run("function", "deploy", "slow", "--runtime", "oneshot", "--code", "slow.sh", "--on", "slow", "--", "./slow.sh")
    own_host.append("slow", b"x")
    with opens(f"{own_host.url}/ui/farm/runs?function=slow&state=started") as page:
        page.locator("main tbody a.mono").first.click()
        output = page.locator(".card", has_text="Output")
        expect(output.locator("pre")).to_have_text(re.compile("^it <b>begins</b>$", re.MULTILINE))
        expect(output).to_contain_text("as it comes")
        assert faults(page) == []
        go.touch()
        expect(output.locator("pre")).to_contain_text("it ends")
        expect(page.locator(".facts")).to_contain_text("done")
        expect(output).not_to_contain_text("as it comes")
        # The command beside it says the same.
        command = output.locator(".cmd code").inner_text()
        assert own_host.run(*command.split()[1:]) == "it <b>begins</b>\nit ends\n"


def test_a_group_of_failures_is_retried(own_host: Host, opens: Opens) -> None:
    for celsius in [41, 42, 20]:
        own_host.append("raw/kitchen", {"celsius": celsius})
    own_host.idle()
    with opens(f"{own_host.url}/ui/farm/failures") as page:
        group = page.locator(".card.problems")
        expect(group).to_contain_text("2 dead letters")
        expect(group).to_contain_text("the pager <b>refused</b>")
        (own_host.place / "functions.sh").write_text((own_host.place / "functions.sh").read_text().replace("-lt 40", "-lt 50"))
        own_host.run("up")
        group.get_by_role("button", name="Retry all 2").click()
        group.get_by_role("button", name="Yes").click()
        expect(group).to_contain_text("2 retried")
        page.get_by_label("Since").select_option("the last hour")
        expect(group).to_contain_text("2 dead letters")
        assert "since=1h" in page.url
    own_host.idle()
    assert own_host.get("failures")["failures"][0]["waiting"] == 0


@pytest.mark.parametrize("phone", [True, False], ids=["phone", "laptop"])
def test_the_tasks_of_executors_are_shown_by_pool(own_host: Host, opens: Opens, phone: bool) -> None:
    def halve(number: int) -> float:
        return 10 / number

    with millrace.connect(str(own_host.place / ".millrace")) as farm, farm.Executor(workers=2) as executor:
        futures = [executor.submit(halve, number) for number in (1, 2, 0)]
        assert [future.exception() is None for future in futures] == [True, True, False]
        [pool] = own_host.get("tasks")["pools"]
        assert [pool[key] for key in ("workers", "queued", "running", "failed")] == [2, 0, 0, 0]
        assert (pool["done"], pool["results"], pool["raised"]) == (3, 3, 1)
        name = pool["pool"]
        assert name in own_host.run("function", "pools")
        with opens(f"{own_host.url}/ui/farm/tasks", phone=phone) as page:
            card = page.locator(".grid .card", has_text=name)
            expect(card).to_contain_text("1 of the newest 3 results")
            expect(page.get_by_role("region", name="Runs").locator("tbody tr")).to_have_count(3)
            page.screenshot(path=SCREENSHOTS / f"tasks-{'phone' if phone else 'light'}.png")
            assert faults(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= (390 if phone else 1280)
