"""The table of several runs, as in the study (its table 3.4), and a sentence for each of its three questions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Optional

from millrace.parallelism.metrics import Metrics, quantile
from millrace.parallelism.record import Run
from millrace.parallelism.study import PRINTED, is_printed

#: The study's own words for what is full parallelism, and for what is not affected by others.
FULL, CALM, DISTURBED = 0.95, 1.25, 2.0


def time(ms: Optional[float]) -> str:
    """Milliseconds as people read them."""
    if ms is None:
        return "–"
    return f"{ms:.0f} ms" if abs(ms) < 1000 else f"{ms / 1000:.2f} s" if abs(ms) < 100_000 else f"{ms / 1000:.0f} s"


def percent(part: float) -> str:
    """With a digit more where rounding would say "all"."""
    return f"{100 * part:.3g} %"


def table(runs: Sequence[Run], figures: Sequence[Metrics]) -> str:
    """The table, the sentences, and remarks about what to doubt."""
    rows = [["", *(run.platform for run in runs)], ["experiment", *(run.experiment.name for run in runs)]]
    columns = [_column(numbers) for numbers in figures]
    rows += [[name, *(column[name] for column in columns)] for name in columns[0]]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    for run, numbers in zip(runs, figures):
        lines += ["", f"{run.title}{f' ({run.source})' if run.source else ''}"]
        lines += [f"  Q{number}  {sentence}" for number, sentence in enumerate(answers(numbers), 1)]
        lines += [f"  !   {remark}" for remark in remarks(run, numbers)]
    return "\n".join(lines) + "\n"


def _column(numbers: Metrics) -> dict[str, str]:
    if numbers.cold is None:
        cold = "not recorded"
    elif not numbers.cold:
        cold = "none"
    elif numbers.cold_is_beyond_warm and (numbers.cold_median_ms or 0) <= 0:
        cold = f"{numbers.cold}, no longer than warm"
    else:
        beyond = "" if numbers.cold_is_beyond_warm else " (in all)"
        cold = f"{numbers.cold}: median {time(numbers.cold_median_ms)}, p95 {time(numbers.cold_p95_ms)}{beyond}"
    warm = "–" if numbers.warm_met is None else f"{numbers.warm_met} of {numbers.warm_made}"
    disturbed = "–" if numbers.interference is None else f"{numbers.interference:.2f} × {numbers.alone_is}"
    if numbers.machines:
        sizes = sorted(numbers.machines)
        held = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}, median {statistics.median_low(sizes)}"
        machines = f"{len(sizes)} with {held} (by {numbers.machines_by})"
    else:
        machines = "not recorded"
    clocks = "–"
    if numbers.offsets:
        widths = [one.width_ms for one in numbers.offsets.values()]
        clocks = f"{numbers.shifted} of {len(widths)} wrong; known to {time(quantile(widths, 0.5))}, worst {time(max(widths))}"
    return {
        "cold starts": cold,
        "warm instances met": warm,
        "completion": time(numbers.completion_ms),
        "parallel degree": f"{numbers.degree} ({percent(numbers.degree_part)})",
        "instances": str(numbers.instances),
        "invocations at once": str(numbers.most_at_once),
        "failures": ", ".join(f"{count} {kind}" for kind, count in numbers.failures.items()) or "none",
        "duration, median": time(numbers.median_ms),
        "interference": disturbed,
        "wait p50, p99": f"{time(numbers.wait_p50_ms)}, {time(numbers.wait_p99_ms)}",
        "machines with instances": machines,
        "clocks": clocks,
    }


def answers(numbers: Metrics) -> tuple[str, str, str]:
    """The study's questions: does it scale, do invocations disturb each other, and what does the scheduling look like?"""
    part, failed = numbers.degree_part, sum(numbers.failures.values())
    if part >= FULL:
        first = f"It scales: the most instances that ran at once were {numbers.degree}, for {numbers.invocations} invocations ({percent(part)})."
    elif numbers.instances >= FULL * numbers.invocations:
        first = f"Each invocation got an instance, but not at once: at most {numbers.degree} of {numbers.instances} ran together ({percent(part)})."
    elif not numbers.ran:
        first = f"Nothing ran: all {failed} invocations failed."
    else:
        word = "instance" if numbers.degree == 1 else "instances"
        first = f"It does not scale to this load: {numbers.degree} {word} at once for {numbers.invocations} invocations ({percent(part)})."
    if failed and numbers.ran:
        first += f" {failed} failed."
    ratio = numbers.interference
    if ratio is None:
        second = "Nothing ran, so that nothing is known of interference."
    else:
        than = "alone" if numbers.alone_is == "measured" else "the fastest one (how long one takes alone was not measured)"
        word = "hardly disturb" if ratio <= CALM else "disturb" if ratio <= DISTURBED else "strongly disturb"
        second = f"Invocations {word} each other: the median takes {ratio:.2f} times as long as {than}, the longest {time(numbers.longest_ms)}."
        if numbers.most_at_once > numbers.degree:
            second += f" Instances run several invocations at once (up to {numbers.most_at_once} in {numbers.degree})."
    third = f"Half of the invocations start within {time(numbers.wait_p50_ms)}, 99 % within {time(numbers.wait_p99_ms)}"
    if numbers.cold and numbers.cold_median_ms is not None:
        if not numbers.cold_is_beyond_warm:
            third += f"; all starts were cold ({numbers.cold})" if numbers.cold == numbers.ran else f"; {numbers.cold} starts were cold"
        elif numbers.cold_median_ms > 0:
            third += f"; a cold start costs {time(numbers.cold_median_ms)} more than a warm one"
        else:
            third += "; cold starts waited no longer than warm ones"
    elif numbers.cold == 0:
        third += "; no start was cold"
    if numbers.machines and 2 * len(numbers.machines) <= numbers.instances:
        third += f"; {numbers.instances} instances on {len(numbers.machines)} machine{'s' if len(numbers.machines) > 1 else ''}"
    return first, second, third + "."


def remarks(run: Run, numbers: Metrics) -> list[str]:
    """What a reader should know before believing the figures."""
    said = []
    if numbers.is_spread:
        said.append(f"The sends spread over {time(numbers.spread_ms)}, more than 10 % of a task: measure with --processes, or on a faster machine.")
    if numbers.shifted:
        shifts = [one.shift_ms for one in numbers.offsets.values() if one.is_possible and one.shift_ms]
        said.append(
            f"{numbers.shifted} of {len(numbers.offsets)} instances have clocks that are provably wrong, by {time(min(shifts))} to {time(max(shifts))} "
            "at least; their times were shifted."
        )
    if numbers.impossible:
        said.append(f"The times of {numbers.impossible} instances contradict every constant offset: their clocks were set meanwhile.")
    missing = run.experiment.invocations - len(run.invocations)
    if missing > 0:
        said.append(f"The file has records of {len(run.invocations)} invocations, but {run.experiment.invocations} were sent; the rest counts as lost.")
    sizes = {one.memory_mib for one in run.invocations if one.memory_mib}
    if run.experiment.memory_mib and sizes and run.experiment.memory_mib not in sizes and run.platform in ("lambda", "openwhisk"):
        said.append(f"The function has {', '.join(map(str, sorted(sizes)))} MiB, not {run.experiment.memory_mib}: deploy it with the memory to measure.")
    if is_printed(run):
        completion, degree = PRINTED[run.platform]
        said.append(f"The dissertation prints {completion} and {degree} for this experiment; this file gives {time(numbers.completion_ms)} and ")
        said[-1] += f"{numbers.degree} ({percent(numbers.degree_part)}). It does not say which of its files it used."
    return said
