"""The frames of a worker, compared with spec/vectors/worker.json."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from millrace._work import _channel

_VECTORS = Path(__file__).parents[4] / "spec/vectors/worker.json"
_FRAMES = json.loads(_VECTORS.read_text())["frames"]


@pytest.mark.parametrize("golden", [one for one in _FRAMES if one["from"] == "worker"], ids=lambda golden: golden["frame"])
def test_a_worker_sends_the_golden_bytes(golden: dict[str, Any]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = _channel.Channel(ours.fileno())
        channel.work = golden["work"]
        frame = channel.frame(golden["kind"], golden["number"], golden["name"].encode(), bytes.fromhex(golden["payload"]))
        assert frame == bytes.fromhex(golden["bytes"])


@pytest.mark.parametrize("golden", [one for one in _FRAMES if one["from"] == "host"], ids=lambda golden: golden["frame"])
def test_a_worker_takes_the_golden_bytes(golden: dict[str, Any]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = _channel.Channel(ours.fileno())
        theirs.sendall(bytes.fromhex(golden["bytes"]))
        kind, work, number, body = channel._frame()
        name = golden["name"].encode()
        assert (kind, work, number) == (golden["kind"], golden["work"], golden["number"])
        fixed = bytes.fromhex(golden.get("fixed", ""))
        assert body == len(name).to_bytes(2, "little") + fixed + name + bytes.fromhex(golden["payload"])
