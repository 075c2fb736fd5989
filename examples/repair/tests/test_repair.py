"""Each example repairs its history to what a clean run leaves, and draws it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import repair


@pytest.mark.parametrize("name", repair.EXAMPLES)
def test_a_repaired_history_equals_a_clean_run(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("r")  # The path of a Unix socket has at most 107 bytes.
    repaired = repair.EXAMPLES[name](tmp_path)
    assert repaired.equal, repaired.line()
    assert 0 < repaired.replayed < repaired.runs or name == "runs"
    if "error_before" in repaired.figures:
        assert repaired.figures["error_after"] < repaired.figures["error_before"]
    picture = (tmp_path / f"repair-{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


@pytest.mark.parametrize("days", [4, 35])
def test_each_day_of_a_picture_has_its_month(days: int) -> None:
    pictures = repair.pictures
    figure, axes = pictures.plt.subplots()
    pictures.line(axes, {1_357_000_000 + 3600 * n: float(n) for n in range(24 * days)}, "k", 1.0, "readings")
    pictures.days(axes)
    figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_xticklabels()]
    pictures.plt.close(figure)
    assert len(labels) >= 3 and all(label.split()[-1] in ("Dec", "Jan", "Feb") for label in labels), labels
    assert axes.xaxis.get_major_formatter().get_offset() == "2013"
