"""The Santa Claus problem: nine reindeer and ten elves, of whom Santa helps three at a time; reindeer go first.

    python santa.py

Everybody is a cloud thread; they meet at barriers, in queues and by futures. The oracle: 15 deliveries, each with all nine reindeer,
and every group of elves has three.
"""

from __future__ import annotations

import millrace
from millrace import objects

REINDEER, ELVES, GROUP = 9, 10, 3
DELIVERIES, MEETINGS = 15, 20


def reindeer(number: int, home: objects.Barrier, wake: objects.Queue, harness: objects.Barrier, rides: objects.Counter) -> None:
    """Comes back from holidays, delivers toys, and goes on holidays again."""
    for _ in range(DELIVERIES):
        if home.wait() == 0:
            # The last of all wakes Santa.
            wake.put("reindeer")
        harness.wait()
        rides.add(number)


def elf(problems: objects.AtomicLong, waiting: objects.Queue, number: int, turns: objects.Counter) -> None:
    """Works until it meets a problem, and waits for Santa with two others."""
    while problems.get_and_add(-1) > 0:
        door = objects.Future(f"door-{number}-{turns.add(number)}")
        waiting.put(door)
        door.result()


def santa(wake: objects.Queue, harness: objects.Barrier, waiting: objects.Queue, tally: objects.Counter) -> None:
    """Sleeps until somebody wakes him; reindeer before elves."""
    for _ in range(DELIVERIES):
        while True:
            try:
                wake.get(timeout=0.02)
                break
            except objects.Queue.Empty:
                help_elves(waiting, tally)
        harness.wait()
        tally.add("deliveries")
    while tally["helped"] < MEETINGS * GROUP:
        help_elves(waiting, tally)


def help_elves(waiting: objects.Queue, tally: objects.Counter) -> None:
    """Helps three elves, if three wait."""
    if waiting.qsize() < GROUP:
        return
    for door in [waiting.get() for _ in range(GROUP)]:
        tally.add("helped")
        door.set_result("helped")
    tally.add("meetings")


def main() -> dict[str, int]:
    """What happened."""
    with millrace.connect() as host, host.Executor(workers=REINDEER + ELVES + 1) as executor:
        home, harness = host.Barrier("home", REINDEER), host.Barrier("harness", REINDEER + 1)
        wake, waiting = host.Queue("wake"), host.Queue("waiting")
        problems = host.AtomicLong("problems", MEETINGS * GROUP)
        rides, turns, tally = host.Counter("rides"), host.Counter("turns"), host.Counter("tally")
        threads = [millrace.CloudThread(target=santa, args=(wake, harness, waiting, tally), executor=executor)]
        for number in range(REINDEER):
            threads.append(
                millrace.CloudThread(target=reindeer, args=(number, home, wake, harness, rides), executor=executor)
            )
        for number in range(ELVES):
            threads.append(millrace.CloudThread(target=elf, args=(problems, waiting, number, turns), executor=executor))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.result(300)
        told = dict(tally.items())
        assert dict(rides.items()) == dict.fromkeys(range(REINDEER), DELIVERIES), rides.items()
    assert told == {"deliveries": DELIVERIES, "helped": MEETINGS * GROUP, "meetings": MEETINGS}, told
    return told


if __name__ == "__main__":
    print(main())
