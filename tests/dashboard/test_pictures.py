"""The pictures of the README and of the benchmarks. That of the README has the map of `millrace demo` while it runs, and what the repair that
the demo proposes changes.

    MILLRACE_BLESS=1 .venv/bin/python -m pytest tests/dashboard/test_pictures.py     # writes the picture of the README anew
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from conftest import PATIENCE_S, ROOT, SCREENSHOTS, Opens
from PIL import Image
from playwright.sync_api import Page, expect

PICTURES = ROOT / "docs/pictures"
THEMES = ["light", "dark"]
# Of the page on which the parts are put together, in pixels of CSS; the picture has twice as many.
WIDTH = 860
BYTES_MAX = 150_000
# The day on which the thermometer is stuck; the demo has it in right.jsonl.
PROPOSED = ["repair", "run", "raw/jfk", "--values", "right.jsonl", "--reason", "stuck thermometer"]
PAGE = """<!doctype html><style>
  body { margin: 0; padding: 12px; color-scheme: %s; background: light-dark(#f4f6f8, #10161c); color: light-dark(#4a5763, #a8b5c0);
         font: 14px "DejaVu Sans", sans-serif; }
  p { margin: 4px 4px 8px; } img { width: 100%%; display: block; margin-bottom: 12px; } img:last-child { margin: 0; }
</style><p>The map of <b>millrace demo</b>, while it runs</p><img src="%s">
<p>The day of a stuck thermometer, before and after its repair, in a log that a function computes</p><img src="%s">"""


def say(binary: Path, place: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
    done = subprocess.run([binary, *words], cwd=place, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo once it has replayed the year, with the repair that it proposes: the address of its pages."""
    place = tmp_path_factory.mktemp("pictured") / "demo"
    binary = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
    command = [str(binary), "demo", str(place), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watch = threading.Timer(10 * PATIENCE_S, process.kill)
    watch.start()
    try:
        assert process.stdout is not None
        said, pages = "", ""
        # From then on it appends an hour each second: the line of such an hour does not count any more.
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+/ui", line):
                pages = found[0]
            if "measured" in line and "replayed" not in line:
                break
        assert pages and process.poll() is None, said
        say(binary, place, *PROPOSED)
        told = json.loads(say(binary, place, "--json", "repair", "show", "1"))
        assert told["phase"] == "ready" and told["counts"]["replayed"] > 0, told
        yield f"{pages}/demo"
    finally:
        watch.cancel()
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)


def card(page: Page, text: str) -> bytes:
    return page.locator("main .card", has_text=text).screenshot()


def parts(demo: str, opens: Opens, theme: str) -> list[bytes]:
    """The cards of both screens."""
    with opens(f"{demo}/map", theme=theme, device_scale_factor=2) as page:
        page.set_viewport_size({"width": WIDTH + 196, "height": 900})
        expect(page.locator("main")).to_contain_text("sends elsewhere")
        # Rates are on the arrows as soon as the host has counted for a second.
        expect(page.locator("main .card svg").first).to_contain_text("/s")
        the_map = card(page, "sends elsewhere")
    with opens(f"{demo}/repairs/1", theme=theme, device_scale_factor=2) as page:
        page.set_viewport_size({"width": WIDTH + 196, "height": 900})
        page.locator("main").get_by_label("Log").select_option("smooth/jfk")
        figure = page.locator("main figure")
        expect(figure).to_contain_text("with the repair")
        # The table below the curves has many rows.
        figure.evaluate("it => { for (let at = it.nextElementSibling; at; at = at.nextElementSibling) at.style.display = 'none' }")
        the_repair = card(page, "What it changes")
    return [the_map, the_repair]


@pytest.mark.parametrize("theme", THEMES)
def test_the_demo_has_the_map_and_the_repair_of_the_picture(demo: str, opens: Opens, theme: str) -> None:
    data = [f"data:image/png;base64,{base64.b64encode(part).decode()}" for part in parts(demo, opens, theme)]
    with opens("about:blank", device_scale_factor=2) as page:
        page.set_viewport_size({"width": WIDTH, "height": 400})
        page.set_content(PAGE % (theme, *data))
        shot = page.screenshot(full_page=True)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / f"readme-{theme}.png").write_bytes(shot)
    if os.environ.get("MILLRACE_BLESS"):
        PICTURES.mkdir(exist_ok=True)
        Image.open(io.BytesIO(shot)).convert("RGB").save(PICTURES / f"demo-{theme}.webp", quality=80, method=6)


@pytest.mark.parametrize("theme", THEMES)
def test_the_readme_shows_a_small_picture_in_each_theme(theme: str) -> None:
    file = PICTURES / f"demo-{theme}.webp"
    assert f"docs/pictures/{file.name}" in (ROOT / "README.md").read_text()
    assert file.stat().st_size <= BYTES_MAX
    with Image.open(file) as picture:
        assert picture.format == "WEBP" and picture.width == 2 * WIDTH
        # Neither empty nor of the other theme.
        shades = picture.convert("L").resize((64, 64)).getextrema()
        corner = picture.convert("L").getpixel((4, 4))
        assert shades[1] - shades[0] > 60 and (corner > 128) == (theme == "light")


def test_the_picture_of_the_benchmarks_is_drawn_from_their_figures() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts/standing.py", "--check"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert page.index("](benchmarks/standing.svg)") < page.index("**Machine A.**")


@pytest.mark.parametrize("theme", THEMES)
def test_no_text_of_the_picture_of_the_benchmarks_is_cut_off_or_covers_another(opens: Opens, theme: str) -> None:
    with opens((ROOT / "docs/benchmarks/standing.svg").as_uri(), theme=theme) as page:
        boxes = page.evaluate("[...document.querySelectorAll('text')].map(it => { const b = it.getBBox(); return [b.x, b.y, b.width, b.height] })")
        width, height = page.evaluate("(({ width, height }) => [width, height])(document.documentElement.viewBox.baseVal)")
        paper, ink = page.evaluate("['.page', 'text'].map(it => getComputedStyle(document.querySelector(it)).fill)")
    assert len(boxes) > 50 and all(0 <= x and 0 <= y and x + w <= width and y + h <= height for x, y, w, h in boxes), boxes
    assert paper != ink and (paper == "rgb(255, 255, 255)") == (theme == "light")
    for at, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[at + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h - 4 <= y2 or y2 + h2 - 4 <= y, (boxes[at], (x2, y2, w2, h2))
