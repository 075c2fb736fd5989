#!/usr/bin/env python3
"""Grades submissions in Go by a chain of four functions whose results a PostgreSQL far away has to have.

The chain runs three times for each submission: with tables of which everybody waits for the database (synchronous), with
tables of which only those outside wait (external, the default), and with tables of which nobody waits (asynchronous). Says
when each function had ended and when the caller had the answer, and draws it.

With --curves, also measures one function that computes and writes a key again and again, for PostgreSQL and etcd.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grading_chart
import grading_curves
from grading_host import EXAMPLE, REPOSITORY, Host, moment
from grading_servers import Distance, Failed, Postgres

MODES = ("external", "synchronous", "asynchronous")
FUNCTIONS = ("go_grader", "grades", "generate_report", "post_process")
TABLES = ("submissions", "results", "grades", "reports")
WRITES = 3
COMPUTE_MS = [0, 10, 20, 30, 50, 100, 200]
STUDENT, ASSIGNMENT = "alice", "lru"
#: What the submission of this example gets.
GRADE = {"passed": 5, "failed": 1, "points": 7, "of": 10}


@dataclass(frozen=True)
class Graded:
    """One submission on its way, in milliseconds since it was pushed."""

    put: float  # how long the receipt of a put took, before
    ended: list[float]  # of each function
    following: list[float]  # when the next one began, and at last: when the caller had the answer


def main() -> int:
    options = parse_options()
    try:
        work = options.out / "grading"
        shutil.rmtree(work, ignore_errors=True)  # what an earlier demonstration left
        work.mkdir(parents=True)
        figures = [measured(rounds, round_trip) for round_trip, rounds in grade(work.resolve(), options).items()]
        (options.out / "grading.json").write_text(json.dumps(figures, indent=2) + "\n")
        for one in figures:
            report(one)
        print(f"picture: {grading_chart.draw(figures, FUNCTIONS, options.out / 'grading.png')}", flush=True)
        if options.curves:
            print(f"picture: {grading_curves.run(work.resolve(), options)}")
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rounds", type=int, default=20, help="how many submissions are graded with each kind of table [20]")
    add("--round-trip", type=float, nargs="+", default=[23, 100], metavar="MS", help="to the database and back [23 100]")
    add("--curves", action="store_true", help="also measure one function, for about a quarter of an hour")
    add("--writes", type=int, nargs="+", default=[1, 5, 10, 50], metavar="COUNT", help="of the curves [1 5 10 50]")
    add("--compute", type=float, nargs="+", default=COMPUTE_MS, metavar="MS", help=f"before each write {COMPUTE_MS}")
    add("--repeat", type=int, default=3, metavar="TIMES", help="how often each point is measured [3]")
    add("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="where the pictures go [demo-out]")
    return parser.parse_args()


def grade(work: Path, options: argparse.Namespace) -> dict[float, dict[str, list[Graded]]]:
    """Lets three hosts grade the same submissions, and returns what that took by round trip and mode."""
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres())
        far = stack.enter_context(Distance(postgres, 0))
        hosts = {}
        for mode in MODES:
            postgres.query(f"CREATE DATABASE {mode}", "postgres")
            url = f"postgresql://postgres@127.0.0.1:{far.port}/{mode}"
            hosts[mode] = stack.enter_context(Host(work / mode, "millrace.toml", url, mode))
        print("the first submission compiles Go's library", flush=True)
        for mode in MODES:
            push(hosts[mode], 1)
        graded: dict[float, dict[str, list[Graded]]] = {}
        revision = 1
        for round_trip in options.round_trip:
            far.round_trip_s = round_trip / 1000
            rounds = graded.setdefault(round_trip, {mode: [] for mode in MODES})
            for number in range(options.rounds):
                revision += 1
                # In turn, so that none is always the first.
                for mode in (MODES * 2)[number % 3 : number % 3 + 3]:
                    rounds[mode].append(push(hosts[mode], revision))
        for mode in MODES:
            verify(hosts[mode], postgres, mode, revision)
    return graded


def submission(revision: int) -> dict[str, str]:
    """The files of the example's submission. Each revision differs, so Go compiles and links it."""
    files = {path.name: path.read_text() for path in sorted((EXAMPLE / "submission").iterdir())}
    files["lru.go"] = re.sub(r"^const Revision = .*$", f"const Revision = {revision}", files["lru.go"], flags=re.MULTILINE)
    return files


def push(host: Host, revision: int) -> Graded:
    """Hands a submission in, and waits for the comment on it."""
    key = f"{STUDENT}/{ASSIGNMENT}/{revision}"
    host.connection.close()  # The host may have closed it, if nothing was asked for long; the next request opens it again.
    comments = host.latest("comments")
    begun = time.time()
    host.put("submissions", key, {"student": STUDENT, "assignment": ASSIGNMENT, "revision": revision})
    pushed = time.time()
    host.append("pushes", {"submission": key, "files": submission(revision)})
    answer = json.loads(host.newer("comments", comments))
    answered = time.time()
    if answer["submission"] != key or f"{GRADE['points']} of {GRADE['of']} points" not in answer["comment"]:
        raise Failed(f"the comment on {key} is {answer}")
    runs = {row["function"]: row for row in reversed(host.rows("run", "ls", "--last", str(len(FUNCTIONS))))}

    def since(when: str) -> float:
        return 1000 * (moment(when) - pushed)

    following = [since(runs[name]["attempts"][-1]["time"]) for name in FUNCTIONS[1:]]
    ended = [since(runs[name]["ended"]) for name in FUNCTIONS]
    return Graded(1000 * (pushed - begun), ended, [*following, 1000 * (answered - pushed)])


def verify(host: Host, postgres: Postgres, mode: str, count: int) -> None:
    """The database has what the tables have, and every submission has its grade."""
    host.call("table", "externalize")
    for table in TABLES:
        host.call("table", "check", table)
        if (rows := postgres.query(f"SELECT count(*) FROM {table}", mode)) != [str(count)]:
            raise Failed(f"{table} has {rows} rows in the database; {count} submissions were graded")
    grades = {json.dumps(json.loads(row)) for row in postgres.query("SELECT value FROM grades", mode)}
    if [json.loads(grade) for grade in grades] != [GRADE]:
        raise Failed(f"the grades are {grades}")


def measured(rounds: dict[str, list[Graded]], round_trip: float) -> dict:
    """The medians of all rounds, and the bounds that follow from them.

    The first function does the same with each kind of table, and takes by far the longest. So its median is that of all rounds, and
    the rest of a round counts from its end: then the load of the machine does not look like a difference between the kinds.
    """
    first = median(one.ended[0] for graded in rounds.values() for one in graded)
    modes = {}
    for mode, graded in rounds.items():
        ended = [first + median(one.ended[step] - one.ended[0] for one in graded) for step in range(len(FUNCTIONS))]
        following = [first + median(one.following[step] - one.ended[0] for one in graded) for step in range(len(FUNCTIONS))]
        modes[mode] = {"ended": ended, "following": following, "answers": sorted(one.following[-1] for one in graded)}
    write = median(one.put for mode in MODES[:2] for one in rounds[mode])
    execution = modes["asynchronous"]["following"][-1]
    return {
        "round_trip": round_trip,
        "rounds": len(rounds["external"]),
        "write": write,
        "execution": execution,
        "both": execution + WRITES * write,
        "bound": max(execution, WRITES * write) + write,
        "saved": 1 - modes["external"]["following"][-1] / modes["synchronous"]["following"][-1],
        "modes": modes,
    }


def report(figures: dict) -> None:
    print(f"\nround trip {figures['round_trip']:.0f} ms; {figures['rounds']} submissions, medians in ms since the push")
    print(f"{'':18}" + "".join(f"{mode:>22}" for mode in MODES))
    print(f"{'':18}" + f"{'ended':>13}{'next':>9}" * len(MODES))
    for step, name in enumerate(FUNCTIONS):
        cells = (f"{mode['ended'][step]:13.1f}{mode['following'][step]:9.1f}" for mode in figures["modes"].values())
        print(f"{name:18}" + "".join(cells))
    print("(the next step after post_process is the caller's, who has the answer)")
    print(f"one write: {figures['write']:.1f}; execution E: {figures['execution']:.1f}; {WRITES} writes W: {WRITES * figures['write']:.1f}")
    print(f"E + W = {figures['both']:.1f}; max(E, W) + one write = {figures['bound']:.1f}")
    print(f"external synchrony saves {100 * figures['saved']:.1f} % of the synchronous time", flush=True)


if __name__ == "__main__":
    sys.exit(main())
