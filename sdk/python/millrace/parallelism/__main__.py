"""The command: `python -m millrace.parallelism`, which `millrace bench parallelism` also runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from millrace import Error
from millrace.parallelism import chart, metrics, package, table
from millrace.parallelism.platforms import NAMES, Options
from millrace.parallelism.record import RunError, parse_experiment, read, write
from millrace.parallelism.run import run

ABOUT = """\
Measure how parallel the functions of a platform are, after Barcelona-Pons and García-López (2021).

An experiment is I/W/T/M: invocations at once, instances expected to be warm, task (S sleep, C compute π, M matrix products), memory (s is
256 MiB, b 2048 MiB, or MiB). 200/50/C/b sends 200 invocations that compute, to big functions of which 50 are warm.
"""
EXAMPLES = """\
Commands for results (each has --help):
  chart run.json -o FILE.svg        draw who ran when; also .png
  table *.json                      compare the figures, and answer the study's three questions
  compare aws.json ours.json        the table, and with -o FILE.svg the charts side by side
  function --for azure -o FILE.zip  write the function's package for a platform

Examples:
  python -m millrace.parallelism 50/0/C/s --on local --calibrate -o local.json
  python -m millrace.parallelism 200/0/S/s --on millrace --url farm --workers 64 -o ours.json
  python -m millrace.parallelism 200/50/C/b --on lambda --warm -o aws.json
  python -m millrace.parallelism 1000/0/M/1024 --async --on lambda --bucket results -o large.json
  python -m millrace.parallelism 100/0/S/s --on http --url https://app.azurewebsites.net/api/parallelism --header "x-functions-key: KEY" -o azure.json
"""
PROGRAM = os.environ.get("MILLRACE_PARALLELISM_NAME") or "python -m millrace.parallelism"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME: VALUE")
    return name.strip(), value.strip()


def _measuring() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description=ABOUT, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", metavar="I/W/T/M", help="the experiment, such as 200/50/C/b")
    parser.add_argument("--on", required=True, metavar="PLATFORM", help=", ".join(NAMES))
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="FILE", help="where to write the record of the run")
    parser.add_argument("--url", "--endpoint-url", metavar="URL", help="the function (http), the API (lambda, openwhisk), or a namespace (millrace, log)")
    parser.add_argument("--function", default="parallelism", metavar="NAME", help="the name of the function, action or pool [default: parallelism]")
    parser.add_argument("--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'", help="a header of every request")
    parser.add_argument("--auth", metavar="USER:PASSWORD", help="the key of openwhisk [default: $OPENWHISK_AUTH]")
    parser.add_argument("--region", metavar="REGION", help="of AWS [default: as aws configure says]")
    parser.add_argument("--bucket", metavar="BUCKET", help="for results of lambda with --async")
    parser.add_argument("--async", dest="asynchronous", action="store_true", help="invoke asynchronously, and fetch the results later")
    parser.add_argument("--warm", action="store_true", help="first invoke W instances, and tell how many of them are met again")
    parser.add_argument("--calibrate", action="store_true", help="first run the task alone, and choose iterations that take --seconds")
    parser.add_argument("--iterations", type=int, metavar="N", help="of the task [default: 5000000 for C, 2500 for M]")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long the task sleeps, or is calibrated to take [default: 1; 60 for M]")
    parser.add_argument("--workers", type=int, metavar="N", help="workers of millrace and log, at most 64 [default: the processors, at most I]")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="send from so many processes [default: 1]")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="how long to wait for an answer [default: 600]")
    return parser


def _measure(words: Sequence[str]) -> int:
    given = _measuring().parse_args(words)
    if given.iterations is not None and not 1 <= given.iterations <= 10**12:
        raise RunError(f"--iterations {given.iterations}: it is 1 to 1000000000000")
    if not 0 < given.timeout <= 86400:
        raise RunError(f"--timeout {given.timeout:g}: it is more than 0, and at most 86400 seconds")
    if not given.out.absolute().parent.is_dir():
        raise RunError(f"-o {given.out}: there is no directory {given.out.absolute().parent}; create it first")
    experiment = parse_experiment(given.experiment, given.asynchronous, given.iterations)
    if given.warm and not experiment.warm_expected:
        raise RunError(f"--warm: '{given.experiment}' expects no warm instances; name a number, as in 200/50/C/b")
    options = Options(
        given.url, given.function, dict(given.header), given.auth, given.region, given.bucket, given.workers, given.timeout
    )  # fmt: skip
    settings = {"warm": given.warm, "calibrated": given.calibrate, "processes": given.processes, "seconds": given.seconds}
    found = run(given.on, experiment, options, **settings, say=lambda text: print(text, file=sys.stderr, flush=True))
    write(found, given.out)
    print(table.table([found], [metrics.measure(found)]), end="")
    print(f"\nwrote {given.out}; draw it: {PROGRAM} chart {given.out} -o {given.out.with_suffix('.svg')}")
    return 0 if any(one.status == "ok" for one in found.invocations) else 1


def _results(command: str, words: Sequence[str]) -> int:
    about = {
        "chart": "Draw a run: a row for each invocation, or for more than 500 a curve and a histogram.",
        "table": "Print the figures of runs side by side, and answer the study's three questions.",
        "compare": "Print the figures of runs, and draw them side by side with one time axis.",
    }[command]
    parser = argparse.ArgumentParser(f"{PROGRAM} {command}", description=about)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="runs of this benchmark, or files of the study")
    if command != "table":
        parser.add_argument("-o", "--out", required=command == "chart", type=Path, metavar="FILE", help="where to draw: FILE.svg or FILE.png")
        parser.add_argument("--large", action=argparse.BooleanOptionalAction, help="draw a curve and a histogram [default: above 500 invocations]")
    if command != "chart":
        parser.add_argument("--alone", type=float, metavar="MS", help="how long the task takes alone, if the files do not say")
    given = parser.parse_args(words)
    runs = [read(file) for file in given.files]
    if command != "chart":
        print(table.table(runs, [metrics.measure(one, given.alone) for one in runs]), end="")
    if command != "table" and given.out is not None:
        chart.save(chart.draw(runs, given.large), given.out)
        print(f"wrote {given.out}")
    return 0


def _package(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(f"{PROGRAM} function", description="Write the package of the benchmark's function for a platform.")
    parser.add_argument("--for", dest="platform", required=True, metavar="PLATFORM", help=", ".join(package.PLATFORMS))
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="FILE.zip", help="where to write it")
    given = parser.parse_args(words)
    advice = package.write(given.platform, given.out)
    print(f"wrote {given.out}; deploy it:\n  {advice}")
    return 0


def main(words: Sequence[str]) -> int:
    """Runs the command; its exit code."""
    try:
        if words and words[0] in ("chart", "table", "compare"):
            return _results(words[0], words[1:])
        if words and words[0] == "function":
            return _package(words[1:])
        return _measure(words)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Error as error:
        # One of a host or a namespace.
        print(f"error: {error.code}: {error.detail}", file=sys.stderr)
        print(f"help: {error.remedy}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output has enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
