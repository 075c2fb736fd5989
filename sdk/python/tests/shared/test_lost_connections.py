"""Calls over connections that are lost at any moment count once."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import millrace


class Cutter:
    """Passes bytes on to a host, and cuts every connection after a random number of them."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0
        self._passing: list[threading.Thread] = []
        self.cutting = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            host = socket.create_connection(("127.0.0.1", self._port))
            # The greeting alone has some 400 bytes.
            budget = [self._random.randrange(600, 3000)]
            for source, sink in ((client, host), (host, client)):
                passing = threading.Thread(target=self._pass, args=(source, sink, budget), daemon=True)
                self._passing.append(passing)
                passing.start()

    def _pass(self, source: socket.socket, sink: socket.socket, budget: list[int]) -> None:
        try:
            while data := source.recv(64):
                budget[0] -= len(data)
                if self.cutting and budget[0] < 0:
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        # The other end is the other direction's to close.
        source.close()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for passing in self._passing:
            passing.join(60)


def test_calls_count_once_however_often_the_connection_is_lost(
    ns: millrace.Namespace, host: Callable[..., Any]
) -> None:
    served = host(ns)
    seed = time.time_ns() & 0xFFFF
    print("seed", seed)
    cutter = Cutter(int(served.address.rpartition(":")[2].partition("/")[0]), seed)
    try:
        with millrace.connect(f"mr://127.0.0.1:{cutter.port}/farm") as farm:
            hits, jobs, lock = farm.AtomicInt("hits"), farm.Queue("jobs"), farm.Lock("lock")
            taken: list[tuple[int, int]] = []

            def work(number: int) -> None:
                for turn in range(30):
                    hits.add()
                    if number % 2:
                        jobs.put((number, turn))
                    else:
                        taken.append(jobs.get())
                    with lock:
                        pass

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(240)
            assert not any(thread.is_alive() for thread in threads)
            cutter.cutting = False
            assert hits.get() == 120, f"seed {seed}"
            assert sorted(taken) == sorted((number, turn) for number in (1, 3) for turn in range(30)), f"seed {seed}"
            assert not lock.locked() and cutter.cuts > 0
    finally:
        cutter.close()
