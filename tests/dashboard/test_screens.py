"""Each screen: it shows what the interface answers, in both themes and on a phone, without faults that axe finds."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from conftest import PATIENCE_S, SCREENSHOTS, Host, Opens, faults
from playwright.sync_api import expect

# Of each screen: its address, and a text that is there once it is loaded.
SCREENS = {
    "overview": ("farm", "Last values"),
    "map": ("farm/map", "sends elsewhere"),
    "logs": ("farm/logs", "raw/"),
    "log": ("farm/logs/raw/kitchen?at=2&field=/celsius", "raw/kitchen@2"),
    "runs": ("farm/runs", "mean/kitchen@1"),
    "failures": ("farm/failures", "MR3"),
    "functions": ("farm/functions", "watch"),
    "function": ("farm/functions/watch", "Definition"),
    "trace": ("farm/trace/raw/kitchen@4", "What it caused"),
    "repairs": ("farm/repairs", "Nothing was repaired yet"),
    "correct": ("farm/repairs/new?log=raw/kitchen&seqno=2", "What they should be"),
    "tables": ("farm/tables", "There is no table"),
    "devices": ("farm/devices", "No device has sent records"),
    "links": ("farm/links", "No link to another namespace"),
    "cluster": ("farm/cluster", "belongs to no cluster"),
    "objects": ("farm/objects", "There are no shared objects"),
    "tasks": ("farm/tasks", "There is no pool of workers"),
    "capabilities": ("farm/capabilities", "Issue a capability"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing(host: Host, opens: Opens, screen: str, theme: str) -> None:
    address, text = SCREENS[screen]
    with opens(f"{host.url}/ui/{address}", theme=theme) as page:
        expect(page.locator("main")).to_contain_text(text)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{screen}-{theme}.png")
        assert faults(page) == []


@pytest.mark.parametrize("screen", SCREENS)
def test_a_phone_shows_it_without_scrolling_sideways(host: Host, opens: Opens, screen: str) -> None:
    address, text = SCREENS[screen]
    with opens(f"{host.url}/ui/{address}", phone=True, theme="dark") as page:
        expect(page.locator("main")).to_contain_text(text)
        page.screenshot(path=SCREENSHOTS / f"{screen}-phone.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert faults(page) == []


# What changes something, waits, or has a placeholder is not run.
UNRUN = re.compile(r"^python\b|\b(append|create|add|up|init|serve|retry|run \d|apply|rollback)\b|[A-Z]{3}")


def test_the_commands_beside_the_screens_work(host: Host, opens: Opens) -> None:
    commands = set()
    for address, text in SCREENS.values():
        with opens(f"{host.url}/ui/{address}") as page:
            expect(page.locator("main")).to_contain_text(text)
            commands |= set(page.locator(".cmd code").all_inner_texts())
    with opens(f"{host.url}/ui/farm/runs/{host.get('runs?limit=1')['runs'][0]['id']}") as page:
        expect(page.locator("main")).to_contain_text("Attempts")
        commands |= set(page.locator(".cmd code").all_inner_texts())
    ran = 0
    for command in sorted(commands):
        program, *words = shlex.split(command)
        assert program in ("millrace", "python")
        if UNRUN.search(command):
            continue
        done = subprocess.run([host.binary, *words], cwd=host.place, capture_output=True, text=True, timeout=PATIENCE_S)
        # The namespace of this test belongs to no cluster.
        assert done.returncode == 0 or "MR7209" in done.stderr, (command, done.stderr)
        ran += 1
    assert ran >= 12, commands


def test_the_overview_says_what_the_interface_says(host: Host, opens: Opens) -> None:
    with opens(f"{host.url}/ui/farm") as page:
        main = page.locator("main")
        for reason in host.get("why")["reasons"]:
            expect(main).to_contain_text(reason["text"].replace("`", ""))
        newest = host.get("logs/raw%2Fkitchen/records?from=6")["records"][0]
        card = page.locator(".values a", has_text="raw/kitchen")
        expect(card).to_contain_text(str(json.loads(newest["data"])["celsius"]))
        dead = sum(it["dead_kept"] - it["dead_retried"] for it in host.get("functions")["functions"])
        expect(page.locator(".tile", has_text="Dead letters")).to_contain_text(str(dead))


def test_a_log_shows_its_records_newest_first(host: Host, opens: Opens) -> None:
    with opens(f"{host.url}/ui/farm/logs/raw/kitchen") as page:
        rows = page.locator(".record-row:not(.head-row)")
        expect(rows.first).to_contain_text('{"celsius":22')
        shown = [row.split("\n")[0] for row in rows.all_inner_texts()]
        assert shown == [str(record["seqno"]) for record in reversed(host.get("logs/raw%2Fkitchen/records")["records"])]


def test_a_decoder_that_does_not_fit_says_so(host: Host, opens: Opens) -> None:
    with opens(f"{host.url}/ui/farm/logs/raw/kitchen?as=number&at=1") as page:
        expect(page.locator(".one")).to_contain_text("Not number: the bytes are not a number")
        page.get_by_label("Shown as").select_option("json")
        expect(page.locator(".one pre")).to_have_text(json.dumps({"celsius": 18, "wet": 36}, indent=2))
        page.get_by_label("Shown as").select_option("hex")
        expect(page.locator(".one pre")).to_contain_text("7b 22 63 65 6c 73 69 75 73")


def test_the_scroll_bar_is_the_sequence_number(own_host: Host, opens: Opens) -> None:
    own_host.run("log", "create", "many", "--history", "100000")
    (own_host.place / "numbers.csv").write_text("number\n" + "".join(f"{number}\n" for number in range(1, 20_001)))
    own_host.run("log", "import", "many", "numbers.csv")
    with opens(f"{own_host.url}/ui/farm/logs/many") as page:
        asked: list[str] = []
        rows = page.locator(".record-row:not(.head-row)")
        expect(rows.first.locator(".value")).to_contain_text("20000")
        page.on("request", lambda request: asked.append(request.url) if "/records" in request.url else None)
        page.get_by_label("Go to").fill("7000")
        page.get_by_label("Go to").press("Enter")
        expect(page.locator(".record-row.chosen .value")).to_contain_text("7000")
        assert len(asked) == 1, asked
        page.locator(".scroller").press("End")
        expect(rows.last.locator(".num")).to_have_text("1")
        page.locator(".scroller").press("Home")
        expect(rows.first.locator(".num")).to_have_text("20000")


def test_a_trace_shows_causes_and_effects(host: Host, opens: Opens) -> None:
    trace = host.get("trace/raw%2Fkitchen@4?direction=effects")
    names = [f"{it['record']['log']}@{it['record']['seqno']}" if "record" in it else it["run"]["function"] for it in trace["branches"]]
    assert names == ["raw/kitchen@4", "mean", "mean/kitchen@4", "watch", "alerts@1"]
    up = host.get("trace/alerts@1?direction=causes")
    assert [it["id"] for it in up["branches"]] == [it["id"] for it in reversed(trace["branches"])]
    with opens(f"{host.url}/ui/farm/trace/mean/kitchen@4") as page:
        came, caused = page.locator(".card", has_text="What it came from"), page.locator(".card", has_text="What it caused")
        expect(came.locator("li")).to_have_count(3)
        expect(caused.locator("li")).to_have_count(3)
        expect(caused).to_contain_text("alerts@1")
        expect(came).to_contain_text("raw/kitchen@4")


def test_a_plot_is_a_table_too(host: Host, opens: Opens) -> None:
    with opens(f"{host.url}/ui/farm/logs/raw/kitchen?field=/celsius") as page:
        expect(page.locator(".u-over")).to_be_visible()
        page.keyboard.press("t")
        values = page.get_by_role("region", name="celsius as a table").locator("tbody tr td:last-child")
        assert values.all_inner_texts() == ["18", "21", "24", "33", "41", "22"]


def test_a_plot_is_of_any_time_and_leads_to_its_records(own_host: Host, opens: Opens) -> None:
    # A record for each second, however fast this machine appends them: each part of the plot has some.
    timed = {"time": {"field": "/at", "unit": "s"}}
    requests.put(f"{own_host.ns}/logs/attic", json=timed, timeout=PATIENCE_S).raise_for_status()
    for begin in range(0, 3000, 1000):
        batch = [{"log": "attic", "data": {"at": 1_356_998_400 + n, "celsius": n % 40}} for n in range(begin, begin + 1000)]
        requests.post(f"{own_host.ns}/batch", json=batch, timeout=PATIENCE_S).raise_for_status()
    with opens(f"{own_host.url}/ui/farm/logs/attic?field=/celsius") as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        over = page.locator(".u-over")
        expect(over).to_be_visible()
        expect(page.locator(".plot-note")).to_contain_text("3,000 records")
        box = over.bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 50, steps=5)
        page.mouse.up()
        expect(page.get_by_role("button", name="Part ×")).to_be_visible()
        expect(page.locator(".plot-note")).not_to_contain_text("3,000 records")
        assert "from=" in page.url and "until=" in page.url
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 50)
        expect(page.locator(".record-row.chosen")).to_be_visible()
        page.locator(".bar select").last.select_option(label="records over time")
        expect(page.locator(".plot-note")).to_contain_text("a bar for")
        assert len([url for url in asked if "/series?" in url or "/rate?" in url]) <= 4, asked
        # A jump to a time is one request, however long the log is.
        time = own_host.get("logs/attic/records?from=1200&count=1")["records"][0]["time"]
        before = len([url for url in asked if "/records?" in url])
        page.get_by_label("Go to").fill(time[:23] + "Z")
        page.get_by_label("Go to").press("Enter")
        expect(page.locator(".record-row.chosen")).to_be_visible()
        jumps = [url for url in asked if "/records?" in url][before:]
        assert len([url for url in jumps if "at=" in url]) == 1


def test_a_plot_has_the_times_of_the_observations(own_host: Host, opens: Opens) -> None:
    described = {"time": {"field": "/at", "unit": "s"}}
    requests.put(f"{own_host.ns}/logs/late", json=described, timeout=PATIENCE_S).raise_for_status()
    # Late, and the oldest last.
    for at, celsius in [(1_356_998_400, 1), ("2013-01-01T03:00:00Z", 4), (1_357_005_600.5, 3), ("2013-01-01T02:00:00+01:00", 2)]:
        own_host.append("late", {"at": at, "celsius": celsius})
    for span in ["all", "near"]:
        with opens(f"{own_host.url}/ui/farm/logs/late?field=/celsius&span={span}") as page:
            expect(page.locator(".u-over")).to_be_visible()
            expect(page.locator(".plot-note")).to_contain_text("by the time in the field at")
            page.keyboard.press("t")
            values = page.get_by_role("region", name="celsius as a table").locator("tbody tr")
            expect(values).to_have_count(4)
            assert [row.split("\t")[-1].strip() for row in values.all_inner_texts()] == ["1", "2", "3", "4"], span
            assert "2013" in values.first.inner_text()
    own_host.append("late", {"celsius": 9})
    own_host.append("late", {"at": "noon", "celsius": 9})
    for span in ["all", "near"]:
        with opens(f"{own_host.url}/ui/farm/logs/late?field=/celsius&span={span}") as page:
            expect(page.locator(".plot-note")).to_contain_text("2 without it, by their append")


def test_the_map_counts_what_flows(own_host: Host, opens: Opens) -> None:
    own_host.append("raw/kitchen", {"celsius": 20})
    own_host.idle()
    with opens(f"{own_host.url}/ui/farm/map") as page:
        page.get_by_role("button", name="As a table").click()
        row = page.locator("tbody tr", has_text="mean/kitchen").first
        expect(row).to_be_visible()
        for celsius in range(20, 30):
            own_host.append("raw/kitchen", {"celsius": celsius})
            own_host.idle()
        expect(page.locator("tbody tr").filter(has_text="raw/kitchen").filter(has_text="runs").locator("td").last).not_to_have_text("0")


def test_many_names_fold_on_the_map(own_host: Host, opens: Opens) -> None:
    # Five functions with fifty logs each.
    text = (own_host.place / "millrace.toml").read_text()
    for part in range(5):
        names = [f"many/{part}/{number:02}" for number in range(50)]
        text += "".join(f'[logs."{name}"]\n' for name in names)
        text += f"[functions.fold-{part}]\nruntime = \"oneshot\"\ncode = \"functions.sh\"\ncommand = [\"./functions.sh\"]\non = {json.dumps(names)}\n"
    (own_host.place / "millrace.toml").write_text(text)
    own_host.run("up")
    with opens(f"{own_host.url}/ui/farm/map") as page:
        expect(page.locator(".map svg .box.function").first).to_be_visible()
        assert page.locator(".map svg .box").count() <= 200
        page.get_by_role("button", name="Unfold many/", exact=True).click()
        expect(page.get_by_role("button", name="Unfold many/3/")).to_be_visible()
        page.get_by_role("button", name="Fold all").click()
        expect(page.get_by_role("button", name="Unfold many/", exact=True)).to_be_visible()


def test_the_map_shows_what_runs_for_what(host: Host, opens: Opens) -> None:
    with opens(f"{host.url}/ui/farm/map") as page:
        expect(page.locator(".map svg .box.function")).to_have_count(2)
        page.get_by_role("button", name="As a table").click()
        rows = page.locator("tbody tr").all_inner_texts()
        arrows = {tuple(row.split("\t")[:3]) for row in rows}
        assert {("raw/kitchen", "mean", "runs"), ("mean", "mean/kitchen", "appends"), ("watch", "alerts", "appends")} <= arrows


def test_the_keyboard_is_enough(host: Host, opens: Opens) -> None:
    with opens(f"{host.url}/ui/farm") as page:
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("l")
        expect(page.get_by_role("heading", name="Logs")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("raw/kitchen@3")
        page.keyboard.press("Enter")
        expect(page.locator(".record-row.chosen")).to_contain_text("24")
        page.locator(".scroller").focus()
        page.keyboard.press("ArrowUp")
        expect(page.locator(".record-row.chosen")).to_contain_text("33")
        assert page.url.endswith("at=4")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.reload()
        expect(page.locator(".record-row.chosen")).to_contain_text("33")


def test_links_and_a_cluster_are_shown_as_the_interface_tells_them(tmp_path: Path, opens: Opens) -> None:
    with Host.running(tmp_path, "cluster", "init") as host:
        host.run("topic", "create", "news")
        host.run("relay", "add", "raw/cellar", "mr://127.0.0.1:1/elsewhere/raw")
        with opens(f"{host.url}/ui/farm/cluster") as page:
            for text in ["Hosts", "leader", "reached", "news"]:
                expect(page.locator("main")).to_contain_text(text)
            for group in host.get("cluster/groups"):
                expect(page.locator(".card", has_text="Groups")).to_contain_text(group["group"])
            assert faults(page) == []
        with opens(f"{host.url}/ui/farm/links", phone=True) as page:
            expect(page.locator("main")).to_contain_text("mr://127.0.0.1:1/elsewhere/raw")
            expect(page.locator("main .state")).not_to_have_text("idle")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert faults(page) == []


# The longest names that there are: of a log, and of a function.
LONG = "/".join(["x" * 60, "y" * 64, "z" * 64, "w" * 64])
LONG_FUNCTION = "f" * 64


@pytest.fixture(scope="module")
def long_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host whose names are as long as they may be."""
    assert len(LONG) == 255
    with Host.running(tmp_path_factory.mktemp("long"), "cluster", "init") as host:
        host.run("log", "create", LONG)
        deploy = ["function", "deploy", LONG_FUNCTION, "--runtime", "oneshot", "--code", "functions.sh", "--on", LONG, "--retries", "0"]
        host.run(*deploy, "--", "./functions.sh", "watch")
        host.run("topic", "create", LONG[:200])
        host.run("relay", "add", LONG, f"mr://127.0.0.1:1/elsewhere/{LONG}")
        host.append(requests.utils.quote(LONG, safe=""), {"celsius": 41})
        host.append(requests.utils.quote(LONG, safe=""), {"celsius": 20})
        host.idle()
        yield host


LONG_SCREENS = ["farm", "farm/map", "farm/logs", f"farm/logs/{LONG}?at=1", "farm/runs", "farm/failures", "farm/functions"]
LONG_SCREENS += [f"farm/functions/{LONG_FUNCTION}", f"farm/trace/{LONG}@1", f"farm/repairs/new?log={LONG}&seqno=1", "farm/links"]
LONG_SCREENS += ["farm/cluster", "farm/capabilities", "farm/devices", "farm/tasks", "farm/objects", "RUN"]


@pytest.mark.parametrize("phone", [True, False], ids=["phone", "laptop"])
@pytest.mark.parametrize("address", LONG_SCREENS, ids=lambda address: re.sub(r"\W+|[xyzwf]{9,}", "-", address))
def test_the_longest_names_fit_every_screen(long_host: Host, opens: Opens, address: str, phone: bool) -> None:
    if address == "RUN":
        address = f"farm/runs/{long_host.get('runs?limit=1')['runs'][0]['id']}"
    with opens(f"{long_host.url}/ui/{address}", phone=phone) as page:
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator("main .waiting")).to_have_count(0)
        width = 390 if phone else 1280
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Nothing but what may scroll by itself is wider than the page.
        wide = page.evaluate(
            """width => [...document.querySelectorAll('main *')].filter(it => !it.closest('.table-box, .map, .scroller, pre, .cmd, .sr, .trace-name'))
                .filter(it => it.getBoundingClientRect().right > width + 1).map(it => it.outerHTML.slice(0, 120))""",
            width,
        )
        assert wide == []


def test_a_million_records_are_jumped_over_in_one_request(own_host: Host, opens: Opens) -> None:
    own_host.run("log", "create", "many", "--history", "1000000")
    (own_host.place / "numbers.csv").write_text("number\n" + "".join(f"{number}\n" for number in range(1, 1_000_001)))
    own_host.run("log", "import", "many", "numbers.csv")
    with opens(f"{own_host.url}/ui/farm/logs/many") as page:
        rows = page.locator(".record-row:not(.head-row)")
        expect(rows.first.locator(".value")).to_contain_text("1000000")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/records" in request.url else None)
        for number in [123_456, 999_999, 1]:
            page.get_by_label("Go to").fill(str(number))
            page.get_by_label("Go to").press("Enter")
            expect(page.locator(".record-row.chosen .value")).to_contain_text(str(number))
        assert len(asked) <= 3, asked
        # So is a jump to a time, and a plot of all of it.
        time = own_host.get("logs/many/records?from=500000&count=1")["records"][0]["time"]
        del asked[:]
        page.get_by_label("Go to").fill(time)
        page.get_by_label("Go to").press("Enter")
        expect(page.locator(".record-row.chosen")).to_be_visible()
        assert len([url for url in asked if "at=" in url]) == 1, asked
    rate = own_host.get("logs/many/rate?buckets=400")
    assert (rate["records"], sum(rate["counts"])) == (1_000_000, 1_000_000)
    assert own_host.get("logs/many/records?at=" + time.replace("+", "%2B") + "&count=1")["records"][0]["time"] >= time
