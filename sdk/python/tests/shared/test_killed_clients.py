"""Programs that are killed in the middle: nobody waits for them for long, nobody shares a lock, and no call counts twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millrace

WORKER = """
import sys
import millrace

address, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
farm = millrace.connect(address, app="storm", lease=0.5)
hits, lock, owner, tokens = farm.AtomicInt("hits"), farm.Lock("lock"), farm.AtomicBytes("owner"), farm.List("tokens")
for turn in range(rounds):
    hits.add()
    print(turn + 1, flush=True)
    with lock as token:
        owner.set(f"{name}/{turn}")
        tokens.append(token)
        assert owner.get() == f"{name}/{turn}", "two have the lock"
print("whole", flush=True)
farm.close()
"""

ROUNDS = 40


def test_who_is_killed_holds_up_nobody(ns: millrace.Namespace, host: Callable[..., Any], tmp_path: Path) -> None:
    served = host(ns)
    seed = time.time_ns() & 0xFFFF
    print("seed", seed)
    chance = random.Random(seed)
    (tmp_path / "worker.py").write_text(WORKER)
    with millrace.connect(served.socket, app="storm") as farm:
        running = []
        for number in range(6):
            said = tmp_path / f"said-{number}"
            command = [sys.executable, str(tmp_path / "worker.py"), served.socket, str(number), str(ROUNDS)]
            with open(said, "wb") as out:
                running.append((subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, cwd="/"), said))
        # Every other one is killed once it has done some of its rounds.
        doomed = running[::2]
        for process, said in doomed:
            wanted = chance.randrange(1, ROUNDS // 2)
            patience = time.monotonic() + 120
            while len(said.read_text().split()) < wanted and process.poll() is None:
                assert time.monotonic() < patience, f"seed {seed}"
                time.sleep(0.001)
            process.kill()
        acknowledged, killed = 0, 0
        for process, said in running:
            _, error = process.communicate(timeout=240)
            words = said.read_text().split()
            if process.returncode == 0:
                assert words[-1] == "whole", f"seed {seed}"
            else:
                assert process.returncode == -9, f"seed {seed}: {error.decode()}"
                killed += 1
            acknowledged += len([word for word in words if word != "whole"])
        # What was told counts; of each that was killed, one call more may.
        assert acknowledged <= farm.AtomicInt("hits").get() <= acknowledged + killed, f"seed {seed}"
        tokens = list(farm.List("tokens"))
        assert tokens == sorted(set(tokens)) and killed > 0, f"seed {seed}"
        assert farm.Lock("lock").acquire(timeout=60)
        farm.Lock("lock").release()
