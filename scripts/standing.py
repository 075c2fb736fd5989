#!/usr/bin/env python3
"""Draws docs/benchmarks/standing.svg from docs/benchmarks.json: where Millrace stands beside other systems.

  standing.py            writes the picture
  standing.py --check    fails if the picture is not what it would write

A bar is the ratio of two figures of one row, which were measured in the same run on the same machine. Figures that others published, and
limits of the machine, are not in it: they are in the table of the page. Rows that miss their target are below the others.
"""

import json
import math
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURE = DOCS / "benchmarks" / "standing.svg"

# Of each row: what is compared, and the names of the others, in the report and in the picture. What is written here by hand is only what
# the figures mean; a name that is not in the report is an error.
COMPARED = {
    "small.bytes": ("bytes on disk for 16 bytes", {"NATS JetStream, file": "JetStream", "Redis AOF, XADD": "Redis AOF"}),
    "durable.append.1": ("durable append, in process", {"Redis, p50": "Redis, Unix socket", "etcd, p50": "etcd"}),
    "durable.append.64": ("durable appends, 64 threads in process", {"Redis": "Redis", "etcd": "etcd"}),
    "remote.append": (
        "append over TCP, in memory",
        {"Redis XADD, not persistent, p50": "Redis", "NATS publish + flush, not persistent, p50": "NATS"},
    ),
    "remote.pipelined": (
        "appends over TCP, in memory, 64 at once",
        {
            "redis-benchmark -P 64 XADD, 1 connection": "Redis",
            "JetStream in memory, 64 unacknowledged, 1 connection": "JetStream",
        },
    ),
    "remote.durable.1": ("durable append over TCP", {"Redis XADD, appendfsync always, p50": "Redis"}),
    "remote.durable": (
        "durable appends over TCP, 64 clients",
        {
            "redis-benchmark -c 64 XADD, appendfsync always": "Redis",
            "JetStream on file, sync_interval always": "JetStream",
            "etcd, one member": "etcd",
        },
    ),
    "http.append": ("HTTP: our appends, its GET of a file", {"nginx, 2 workers, a file of 1 KiB": "nginx"}),
    "sandbox.start": ("first run of Python in a new sandbox", {"bubblewrap and python3 -c pass, p50": "bubblewrap"}),
    "object.call": ("increment of a shared object", {"Redis INCR, p50": "Redis"}),
    "object.many": ("increments, 200 clients", {"Redis INCR": "Redis"}),
    "object.kmeans": ("read and add 25 × 101 numbers", {"Redis, GET and a Lua script, p50": "Redis + Lua"}),
    "object.barrier": (
        "barrier of 1800 clients",
        {"Redis, BLPOP and one script": "Redis", "ZooKeeper, a double barrier": "ZooKeeper"},
    ),
    "executor.map": ("map of 1000 tasks; Lithops: 100", {"Lithops on localhost, 100 tasks": "Lithops, localhost"}),
    "topic.publish": (
        "publish of 8 KiB to three hosts",
        {
            "RabbitMQ, quorum queue over MQTT, 8 KiB": "RabbitMQ",
            "etcd, 3 members, 64 clients, 8 KiB": "etcd",
            "NATS JetStream R3, sync always, 8 KiB": "JetStream R3",
        },
    ),
    "device.append": ("flushed record on a Cortex-M3, instructions", {"FlashDB": "FlashDB", "littlefs": "littlefs"}),
}

WIDTH, TOP, ROW, GAP = 860, 92, 19, 34
# Of the bars: from left to right, and the ratios there.
LEFT, RIGHT = 430, 790
TICKS = [0.2, 0.5, 1, 2, 5, 10, 20, 100, 500]
STYLE = """
text { fill: #1b2733 } .soft { fill: #566470 } .line { stroke: #dfe4e9 } .one { stroke: #566470 } .page { fill: #ffffff }
.better { fill: #12697f } .worse { fill: #c9304a }
@media (prefers-color-scheme: dark) {
text { fill: #e4eaef } .soft { fill: #a3b0bb } .line { stroke: #2c3843 } .one { stroke: #a3b0bb } .page { fill: #10161c }
.better { fill: #4db3cc } .worse { fill: #f0758a }
}
"""


def across(ratio: float) -> float:
    first, last = math.log(TICKS[0]), math.log(TICKS[-1])
    return LEFT + (RIGHT - LEFT) * (math.log(ratio) - first) / (last - first)


def bars(report: dict) -> list[tuple[bool, str, str, str, float]]:
    """Of each bar: whether its row met its target, the row, the label, the other system, and how many times better we are."""
    rows = {row["id"]: row for row in report["rows"]}
    found = []
    for name, (what, others) in COMPARED.items():
        row = rows[name]
        for peer, label in others.items():
            mine, theirs = row["value"], row["peers"][peer]
            # More of a rate is better, and less of anything else.
            ratio = mine / theirs if row["unit"] == "/s" else theirs / mine
            assert TICKS[0] < ratio < TICKS[-1], f"{name}, {peer}: {ratio} is beyond the axis"
            found.append((row["met"], name, what, label, ratio))
    return found


def times(ratio: float) -> str:
    return f"{ratio:.0f} ×" if ratio >= 10 else f"{ratio:.1f} ×" if ratio >= 2 else f"{ratio:.2f} ×"


def drawn(report: dict) -> str:
    all_bars = bars(report)
    groups = [
        ("Rows that meet their target", [bar for bar in all_bars if bar[0]]),
        ("Rows that miss their target", [bar for bar in all_bars if not bar[0]]),
    ]
    groups = [(title, sorted(group, key=lambda bar: -bar[4])) for title, group in groups if group]
    bottom = TOP + sum(GAP + ROW * len(group) for _, group in groups)
    better = sum(bar[4] >= 1 for bar in all_bars)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 16}" font-family="DejaVu Sans, sans-serif" font-size="12">',
        f"<title>Millrace beside other systems: better in {better} of {len(all_bars)} comparisons</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{bottom + 16}"/>',
        '<text x="16" y="26" font-size="15" font-weight="bold">How many times faster than another system, or smaller</text>',
        f'<text class="soft" x="16" y="46">Both figures of a bar are from one run on one machine. Better in {better} of {len(all_bars)} '
        "comparisons; left of 1 × it is worse.</text>",
    ]
    for tick in TICKS:
        x, kind = across(tick), "one" if tick == 1 else "line"
        svg.append(f'<path class="{kind}" d="M{x:.1f} {TOP - 14}V{bottom}"/>')
        svg.append(f'<text class="soft" x="{x:.1f}" y="{TOP - 20}" text-anchor="middle" font-size="11">{tick:g} ×</text>')
    y = float(TOP)
    for title, group in groups:
        y += GAP
        # The lines of the axis do not cross the words.
        svg.append(f'<rect class="page" x="0" y="{y - 24:.0f}" width="{WIDTH}" height="18"/>')
        svg.append(f'<text x="16" y="{y - 10:.0f}" font-weight="bold">{escape(title)}</text>')
        for _, name, what, other, ratio in group:
            start, end = sorted([across(1), across(ratio)])
            kind = "better" if ratio >= 1 else "worse"
            middle = y + ROW / 2 + 4
            svg.append(f'<text x="16" y="{middle:.1f}">{escape(what)}</text>')
            svg.append(f'<text class="soft" x="{LEFT - 12}" y="{middle:.1f}" text-anchor="end">{escape(other)}</text>')
            svg.append(
                f'<rect class="{kind}" x="{start:.1f}" y="{y + 3:.1f}" width="{max(end - start, 1):.1f}" height="{ROW - 6}">'
                f"<title>{escape(name)}: {times(ratio)} {escape(other)}</title></rect>"
            )
            at = across(ratio) + 6 if ratio >= 1 else across(1) + 6
            svg.append(f'<text x="{at:.1f}" y="{middle:.1f}" font-size="11">{times(ratio)}</text>')
            y += ROW
    return "\n".join([*svg, "</svg>", ""])


def main() -> int:
    svg = drawn(json.loads((DOCS / "benchmarks.json").read_text()))
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.is_file() or PICTURE.read_text() != svg:
            print(f"{PICTURE} is not the picture of benchmarks.json; run scripts/standing.py", file=sys.stderr)
            return 1
    elif sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    else:
        PICTURE.write_text(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
