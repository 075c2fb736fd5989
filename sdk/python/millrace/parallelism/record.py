"""The record of a run: who was invoked when, what ran where. Its format is `millrace-parallelism/1`, a JSON document."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

FORMAT = "millrace-parallelism/1"
#: The words for the sizes of memory in the notation, in MiB.
SIZES = {"s": 256, "b": 2048}
TASKS = {"S": "sleep", "C": "compute", "M": "matrix products"}
#: ok: answered. refused: the platform answered without running the function. failed: the function or the platform failed. lost: no answer.
STATES = ("ok", "refused", "failed", "lost")
INVOCATIONS_MAX = 100_000
MEMORY_MIB_MAX = 1 << 20
FILE_BYTES_MAX = 1 << 30


class RunError(ValueError):
    """A file or an option that cannot be used: which part of it, and what to do."""


@dataclass(frozen=True)
class Experiment:
    """What was asked for: I/W/T/M in the notation of the study. None: not known, as for some files of others."""

    invocations: int
    warm_expected: Optional[int] = None
    task: Optional[str] = None
    iterations: Optional[int] = None
    memory_mib: Optional[int] = None
    asynchronous: bool = False
    #: How long the task takes when it runs alone, if that was measured or is known.
    alone_ms: Optional[float] = None

    @property
    def name(self) -> str:
        """The notation."""
        sizes = {mib: letter for letter, mib in SIZES.items()}
        memory = "?" if self.memory_mib is None else sizes.get(self.memory_mib, str(self.memory_mib))
        warm = "?" if self.warm_expected is None else self.warm_expected
        return f"{self.invocations}/{warm}/{self.task or '?'}/{memory}"


@dataclass(frozen=True)
class Client:
    """The machine that sent the invocations."""

    cpus: Optional[int] = None
    started: Optional[str] = None
    #: The time from the first send to the last.
    spread_ms: Optional[float] = None


@dataclass(frozen=True)
class Invocation:
    """One invocation. The client's clock gives sent, answered and received; that of the instance gives start and end."""

    id: str
    sent_ms: float
    #: When the platform answered: with the result, or if the invocation is asynchronous, that it accepts it.
    answered_ms: Optional[float] = None
    #: When the client had the result of an asynchronous invocation.
    received_ms: Optional[float] = None
    start_ms: Optional[float] = None
    end_ms: Optional[float] = None
    instance: Optional[str] = None
    #: This is the instance's nth invocation.
    nth: Optional[int] = None
    boot: Optional[str] = None
    uptime_s: Optional[float] = None
    hostname: Optional[str] = None
    cpu: Optional[str] = None
    memory_mib: Optional[int] = None
    status: str = "ok"
    error: Optional[str] = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        """Whether it is known when and where it ran."""
        return self.start_ms is not None and self.end_ms is not None and self.instance is not None

    @property
    def done_ms(self) -> Optional[float]:
        """When the client had the result, or the refusal."""
        return self.received_ms if self.received_ms is not None else self.answered_ms

    @property
    def cold(self) -> Optional[bool]:
        """Whether it was the first invocation of its instance. None: nobody recorded that."""
        if not self.ran:
            return None
        if self.nth is not None:
            return self.nth == 1
        init = self.extra.get("init_ms")
        return init > 0 if isinstance(init, (int, float)) else None


@dataclass(frozen=True)
class Run:
    """One experiment on one platform."""

    experiment: Experiment
    platform: str
    invocations: tuple[Invocation, ...]
    client: Client = Client()
    #: The instances that answered to the invocations before the experiment.
    warmed: Optional[tuple[str, ...]] = None
    #: Where it was read.
    source: str = ""

    @property
    def title(self) -> str:
        return f"{self.experiment.name} on {self.platform}"


def parse_experiment(text: str, asynchronous: bool = False, iterations: Optional[int] = None) -> Experiment:
    """An experiment in the notation I/W/T/M."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})/([SCM])/(s|b|\d{1,7})", text)
    if not found:
        raise RunError(
            f"'{text}' is not an experiment; write I/W/T/M, as in 200/50/C/b: invocations, expected warm instances, task (S sleep, C compute, "
            "M matrix products), memory (s is 256 MiB, b is 2048 MiB, or a number of MiB)"
        )
    invocations, warm, task, memory = int(found[1]), int(found[2]), found[3], SIZES.get(found[4]) or int(found[4])
    if not 1 <= invocations <= INVOCATIONS_MAX or warm > INVOCATIONS_MAX:
        raise RunError(f"'{text}': {invocations} invocations, {warm} warm; the limits are 1 to {INVOCATIONS_MAX} and 0 to {INVOCATIONS_MAX}")
    if not 1 <= memory <= MEMORY_MIB_MAX:
        raise RunError(f"'{text}': {memory} MiB of memory; the limit is 1 to {MEMORY_MIB_MAX} MiB")
    if iterations is None:
        iterations = {"S": None, "C": 5_000_000, "M": 2500}[task]
    return Experiment(invocations, warm, task, iterations, memory, asynchronous)


def read(path: Union[str, os.PathLike[str]]) -> Run:
    """A run of this benchmark, or a file of the study (see `millrace.parallelism.study`)."""
    from millrace.parallelism import study

    file = Path(path)
    try:
        size = file.stat().st_size
        if size > FILE_BYTES_MAX:
            raise RunError(f"{file}: {size} bytes; the limit is {FILE_BYTES_MAX}")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{file}: byte {error.start} is not UTF-8; this is no file of the benchmark, or it is damaged: copy it again") from None
    if study.is_study(text):
        return study.parse(text, str(file))
    return parse(text, str(file))


def parse(text: str, source: str = "run") -> Run:
    """A document of the format `millrace-parallelism/1`."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        advice = "the file is cut off; measure again, or copy it again" if error.pos >= len(text.rstrip()) - 1 else "correct the file there"
        raise RunError(f"{source}: line {error.lineno}, column {error.colno}: {error.msg}; {advice}") from None
    except RecursionError:
        raise RunError(f"{source}: brackets are nested too deep; this is no file of the benchmark") from None
    if not isinstance(document, dict) or "format" not in document:
        raise RunError(f"{source}: no member 'format'; give a file that `python -m millrace.parallelism … -o FILE` wrote, or one of the study")
    if document["format"] != FORMAT:
        raise RunError(f"{source}: the format is {document['format']!r}; this version of Millrace reads {FORMAT}: install the version that wrote it")
    experiment = _experiment(_object(document, "experiment", source), source)
    client = _object(document, "client", source)
    rows = document.get("invocations")
    if not isinstance(rows, list):
        raise RunError(f"{source}: 'invocations' is missing or no list; measure again")
    where = f"{source}: client"
    warmed = document.get("warmed")
    if warmed is not None and not (isinstance(warmed, list) and all(isinstance(one, str) for one in warmed)):
        raise RunError(f"{source}: 'warmed' is no list of instances; remove it")
    run = Run(
        experiment,
        _text(document, "platform", source) or "unknown",
        tuple(_invocation(row, index, source) for index, row in enumerate(rows)),
        Client(_int(client, "cpus", where), _text(client, "started", where), _number(client, "spread_ms", where)),
        None if warmed is None else tuple(warmed),
        source,
    )
    check(run)
    return run


def check(run: Run) -> None:
    """Refuses holes: what is said of the whole does not fit its parts."""
    seen: dict[str, int] = {}
    for index, one in enumerate(run.invocations):
        if one.id in seen:
            raise RunError(f"{run.source}: invocations[{index}] and [{seen[one.id]}] both have the id '{one.id}'; remove one of them")
        seen[one.id] = index
    count, expected = len(run.invocations), run.experiment.invocations
    if count != expected:
        raise RunError(
            f"{run.source}: {count} of the {expected} invocations that 'experiment' names; records are missing or too many: measure again, or "
            f"set experiment.invocations to {count} to look at these alone"
        )
    if count == 0:
        raise RunError(f"{run.source}: no invocations; measure again")


def write(run: Run, path: Union[str, os.PathLike[str]]) -> None:
    """Writes the document. The file appears at once and whole."""
    document: dict[str, Any] = {"format": FORMAT, "experiment": asdict(run.experiment), "platform": run.platform, "client": asdict(run.client)}
    if run.warmed is not None:
        document["warmed"] = list(run.warmed)
    rows = ",\n    ".join(json.dumps({**asdict(one), "extra": dict(one.extra)}, ensure_ascii=False, allow_nan=False) for one in run.invocations)
    head = json.dumps(document, indent=2, ensure_ascii=False)[:-2]
    file = Path(path)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_text(f'{head},\n  "invocations": [\n    {rows}\n  ]\n}}\n', encoding="utf-8")
        os.replace(partial, file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunError(f"{file} cannot be written: {error.strerror}") from None


def _object(document: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = document.get(name)
    if not isinstance(value, dict):
        raise RunError(f"{where}: '{name}' is missing or no object; measure again")
    return value


def _experiment(given: Mapping[str, Any], source: str) -> Experiment:
    where = f"{source}: experiment"
    invocations = _int(given, "invocations", where)
    if invocations is None:
        raise RunError(f"{where}: 'invocations' is missing; set it to the number of records in 'invocations'")
    task = _text(given, "task", where)
    if task is not None and task not in TASKS:
        raise RunError(f"{where}: the task is {task!r}; it is one of {', '.join(TASKS)}")
    asynchronous = given.get("asynchronous", False)
    if not isinstance(asynchronous, bool):
        raise RunError(f"{where}: 'asynchronous' is {asynchronous!r}; it is true or false")
    return Experiment(
        invocations,
        _int(given, "warm_expected", where),
        task,
        _int(given, "iterations", where),
        _int(given, "memory_mib", where),
        asynchronous,
        _number(given, "alone_ms", where),
    )


def _invocation(row: Any, index: int, source: str) -> Invocation:
    where = f"{source}: invocations[{index}]"
    if not isinstance(row, dict):
        raise RunError(f"{where} is no object; remove it")
    id = _text(row, "id", where)
    if id is None:
        raise RunError(f"{where}: 'id' is missing; give it one that no other record has, or remove the record")
    where = f"{where} ({id})"
    sent = _number(row, "sent_ms", where)
    if sent is None:
        raise RunError(f"{where}: 'sent_ms' is missing; remove the record, and lower experiment.invocations by one")
    extra = row.get("extra")
    if extra is not None and not isinstance(extra, dict):
        raise RunError(f"{where}: 'extra' is no object; remove it")
    one = Invocation(
        id,
        sent,
        _number(row, "answered_ms", where),
        _number(row, "received_ms", where),
        _number(row, "start_ms", where),
        _number(row, "end_ms", where),
        _text(row, "instance", where),
        _int(row, "nth", where),
        _text(row, "boot", where),
        _number(row, "uptime_s", where),
        _text(row, "hostname", where),
        _text(row, "cpu", where),
        _int(row, "memory_mib", where),
        _text(row, "status", where) or "ok",
        _text(row, "error", where),
        extra or {},
    )
    return checked(one, where)


def checked(one: Invocation, where: str) -> Invocation:
    """An invocation that agrees with itself."""
    wrong = None
    if one.status not in STATES:
        wrong = f"the status is {one.status!r}; it is one of {', '.join(STATES)}"
    elif (one.start_ms is None) != (one.end_ms is None) or (one.start_ms is None) != (one.instance is None):
        wrong = "'start_ms', 'end_ms' and 'instance' belong together: give all of them, or none with the status failed or lost"
    elif one.status == "ok" and not one.ran:
        wrong = "the status is ok, but 'start_ms', 'end_ms' and 'instance' are missing; set the status to failed or lost, or remove the record"
    elif one.status == "ok" and one.done_ms is None:
        wrong = "the status is ok, but 'answered_ms' is missing; set the status to lost, or remove the record"
    elif one.start_ms is not None and one.end_ms is not None and one.end_ms < one.start_ms:
        wrong = f"'end_ms' is {one.start_ms - one.end_ms:g} ms before 'start_ms'; the clock was set back meanwhile: remove the record"
    elif one.answered_ms is not None and one.answered_ms < one.sent_ms:
        wrong = f"'answered_ms' is {one.sent_ms - one.answered_ms:g} ms before 'sent_ms'; the clock was set back meanwhile: remove the record"
    elif one.received_ms is not None and one.received_ms < one.sent_ms:
        wrong = f"'received_ms' is {one.sent_ms - one.received_ms:g} ms before 'sent_ms'; the clock was set back meanwhile: remove the record"
    elif one.nth is not None and one.nth < 1:
        wrong = f"'nth' is {one.nth}; an instance counts its invocations from 1: set it to null if it is unknown"
    if wrong:
        raise RunError(f"{where}: {wrong}")
    return one


def _text(row: Mapping[str, Any], name: str, where: str) -> Optional[str]:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value
    raise RunError(f"{where}: '{name}' is {value!r}; it is a text or null")


def _number(row: Mapping[str, Any], name: str, where: str) -> Optional[float]:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e15 < value < 1e15 or not math.isfinite(value):
        raise RunError(f"{where}: '{name}' is {value!r}; it is a number below 1e15, or null")
    return float(value)


def _int(row: Mapping[str, Any], name: str, where: str) -> Optional[int]:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise RunError(f"{where}: '{name}' is {value!r}; it is an integer that is not negative, or null")
    return value
