"""Reads the files of the study "Benchmarking parallelism in FaaS platforms" (github.com/danielBCN/faas-parallelism-benchmark).

A file is a sequence of objects, joined by commas, without brackets. Each provider has its own members. The files do not say how many warm
instances were expected, nor which invocation of its instance each one was; that stays unknown here. Their names end in the number of
invocations that were sent (`size=200`): some files have fewer records, whose rest counts as lost.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Optional

from millrace.parallelism.record import Experiment, Invocation, Run, RunError, checked

#: What each provider's files have, and the name of its platform.
PROVIDERS = {"AWS": "AWS Lambda", "Azure": "Azure Functions", "GCP": "Google Cloud Functions", "IBM": "IBM Cloud Functions"}
ITERATIONS, ITERATIONS_AZURE = 5_000_000, 20_000_000

#: What table 3.4 of the dissertation prints for 200 computing tasks with big functions: completion and parallel degree.
PRINTED = {
    "AWS Lambda": ("1.5 s", "200 (100 %)"),
    "Azure Functions": ("31 s", "18 (11 %, but 18 of 200 are 9 %)"),
    "Google Cloud Functions": ("12.5 s", "less than 100 (less than 50 %)"),
    "IBM Cloud Functions": ("3.5 s", "200 (100 %)"),
}


def is_printed(run: Run) -> bool:
    """Whether table 3.4 has figures of this experiment, if perhaps of another repetition."""
    about = run.experiment
    return run.platform in PRINTED and about.invocations == 200 and about.task == "C" and (about.memory_mib or 0) >= 1536


def is_study(text: str) -> bool:
    """Whether this looks like such a file: an object with the client's times comes first, and not our own format."""
    head = text.lstrip()[:400]
    return head.startswith("{") and '"format"' not in head and re.search(r'"py(start|end|duration)_ms"', head) is not None


def parse(text: str, source: str = "study") -> Run:
    """The run in such a file. Its name tells the task: `sleep`, or `work` with `2g` for big functions."""
    rows: list[tuple[dict[str, Any], int]] = []
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at == len(text):
            break
        line = text.count("\n", 0, at) + 1
        try:
            row, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep"
            raise RunError(f"{source}: record {len(rows)} (line {line}) is cut off or damaged ({what}); copy the file again, or remove the record") from None
        if not isinstance(row, dict):
            raise RunError(f"{source}: record {len(rows)} (line {line}) is no object; remove it")
        rows.append((row, line))
    provider = _provider([row for row, _ in rows], source)
    found = [_invocation(row, f"{source}: record {index} (line {line})", index, provider) for index, (row, line) in enumerate(rows)]
    return Run(_experiment(found, Path(source).stem, provider), PROVIDERS[provider], tuple(found), source=source)


def _provider(rows: list[dict[str, Any]], source: str) -> str:
    for row in rows:
        data = row.get("func_data")
        if "ow_func_start_ms" in row:
            return "IBM"
        if "metadata" in row:
            return "AWS"
        if isinstance(data, dict):
            return "GCP" if "executionID" in data else "AWS"
        if "instance" in row and "start" in row:
            return "Azure"
    if any(isinstance(row.get("func_data"), str) for row in rows):
        # All were refused, which only this provider did.
        return "GCP"
    raise RunError(f"{source}: no record has the members of AWS, Azure, GCP or IBM; give a file from 'results' of the study")


def _experiment(found: list[Invocation], stem: str, provider: str) -> Experiment:
    task = "S" if "sleep" in stem else "C" if re.search(r"work|limit", stem) else None
    memory = next((one.memory_mib for one in found if one.memory_mib), None)
    if memory is None and provider == "Azure":
        memory = 1536
    elif memory is None and provider == "GCP" and task:
        memory = 2048 if "2g" in stem else 256
    iterations = (ITERATIONS_AZURE if provider == "Azure" else ITERATIONS) if task == "C" else None
    named = re.search(r"(?:size=|-)(\d{1,6})$", stem)
    sent = max(len(found), int(named[1]) if named else 0)
    return Experiment(sent, None, task, iterations, memory, False, 1000.0 if task == "S" else None)


def _invocation(row: dict[str, Any], where: str, index: int, provider: str) -> Invocation:
    def number(at: dict[str, Any], name: str, needed: bool = True) -> Optional[float]:
        value = at.get(name)
        if value is None and not needed:
            return None
        try:
            if isinstance(value, bool) or value is None:
                raise ValueError
            return float(value)
        except (TypeError, ValueError):
            raise RunError(f"{where}: '{name}' is {'missing' if value is None else repr(value)}; it is a number: remove the record") from None

    sent, answered = number(row, "pystart_ms"), number(row, "pyend_ms")
    assert sent is not None
    told = row.get("func_data")
    if provider != "Azure" and not isinstance(told, dict):
        title = re.search(r"<title>\s*(.*?)\s*</title>", str(told), re.DOTALL | re.IGNORECASE)
        text = title[1] if title else " ".join(str(told or "").split())[:200]
        return checked(Invocation(f"record {index}", sent, answered, status="refused", error=text or "an empty answer"), where)
    data: dict[str, Any] = told if isinstance(told, dict) else {}
    extra: dict[str, Optional[float]] = {}
    if provider == "Azure":
        start, end, instance, id = number(row, "start"), number(row, "end"), row.get("instance"), row.get("invocation")
    else:
        start, end, instance = number(data, "initTime_ms"), number(data, "endTime_ms"), data.get("containerID")
        id = data.get("executionID" if provider == "GCP" else "funcActivationID")
        extra = {"init_ms": number(row, "init_time", False), "wait_ms": number(row, "wait_time", False)}
    if not isinstance(instance, str) or not instance:
        raise RunError(f"{where}: the instance is {instance!r}; it is a text: remove the record")
    limit = number(row, "mem_lim", False) if provider == "IBM" else number(data, "mem_limit", False)
    cpu = data.get("cpuinfo")
    one = Invocation(
        # Some ids occur twice: that is how a platform shows that it ran an invocation again.
        f"record {index}" if not isinstance(id, str) or not id else f"{id} (record {index})",
        sent,
        answered,
        start_ms=start,
        end_ms=end,
        instance=instance,
        uptime_s=number(data, "uptime", False),
        hostname=data.get("hostname") if isinstance(data.get("hostname"), str) else None,
        cpu=cpu if isinstance(cpu, str) else None,
        memory_mib=None if limit is None else int(limit),
        extra={name: value for name, value in extra.items() if value is not None},
    )
    return checked(one, where)
