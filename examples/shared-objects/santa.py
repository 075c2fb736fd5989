"""The Santa Claus problem: nine reindeer and ten elves, of whom Santa helps three at a time; reindeer go first.

    python santa.py

Everybody is a thread; they meet at barriers and in queues. The oracle: 15 deliveries, each with all nine reindeer, and every group of
elves has three.
"""

from __future__ import annotations

import collections
import millrace.queue as queue
import millrace.threading as threading

REINDEER, ELVES, GROUP = 9, 10, 3
DELIVERIES, MEETINGS = 15, 20


def reindeer(number: int, home: threading.Barrier, wake: queue.Queue, harness: threading.Barrier, diary: queue.Queue) -> None:
    """Comes back from holidays, delivers toys, and goes on holidays again."""
    for _ in range(DELIVERIES):
        if home.wait() == 0:
            # One of them wakes Santa for all of them.
            wake.put("reindeer")
        harness.wait()
        diary.put(f"ride {number}")


def elf(problems: threading.Semaphore, waiting: queue.Queue, answers: queue.Queue) -> None:
    """Works until it meets a problem, and waits for Santa with two others."""
    while problems.acquire(blocking=False):
        waiting.put("elf")
        answers.get()


def help_elves(waiting: queue.Queue, answers: queue.Queue, diary: queue.Queue) -> int:
    """Helps three elves, if three wait; returns the number of groups."""
    if waiting.qsize() < GROUP:
        return 0
    for _ in range(GROUP):
        waiting.get()
        answers.put("helped")
        diary.put("helped")
    diary.put("meeting")
    return 1


def santa(
    wake: queue.Queue, harness: threading.Barrier, waiting: queue.Queue, answers: queue.Queue, diary: queue.Queue
) -> None:
    """Sleeps until somebody wakes him; reindeer before elves."""
    meetings = 0
    for _ in range(DELIVERIES):
        while True:
            try:
                wake.get(timeout=0.02)
                break
            except queue.Empty:
                meetings += help_elves(waiting, answers, diary)
        harness.wait()
        diary.put("delivery")
    while meetings < MEETINGS:
        meetings += help_elves(waiting, answers, diary)


def main() -> dict[str, int]:
    """Returns the events."""
    home, harness = threading.Barrier(REINDEER), threading.Barrier(REINDEER + 1)
    wake, waiting, answers, diary = queue.Queue(), queue.Queue(), queue.Queue(), queue.Queue()
    problems = threading.Semaphore(MEETINGS * GROUP)
    threads = [threading.Thread(target=santa, args=(wake, harness, waiting, answers, diary))]
    for number in range(REINDEER):
        threads.append(threading.Thread(target=reindeer, args=(number, home, wake, harness, diary)))
    for _ in range(ELVES):
        threads.append(threading.Thread(target=elf, args=(problems, waiting, answers)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = collections.Counter(diary.get() for _ in range(diary.qsize()))
    for number in range(REINDEER):
        assert told.pop(f"ride {number}") == DELIVERIES, told
    assert told == {"delivery": DELIVERIES, "helped": MEETINGS * GROUP, "meeting": MEETINGS}, told
    return dict(told)


if __name__ == "__main__":
    print(main())
