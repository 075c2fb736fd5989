"""The format of runs, and the files of the study of each provider. The files are made here; they have the formats of the real ones."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Optional

import pytest

from millrace.parallelism import Experiment, Invocation, Run, RunError, measure, read, study, table, write
from millrace.parallelism.record import Client, parse, parse_experiment

BEGIN = 1_588_000_000_000.0


def joined(rows: list[Any]) -> str:
    """Objects joined by commas, without brackets, as the study's client appends them."""
    return "".join(f"\n{json.dumps(row, indent=4)}," for row in rows)


def client(sent: float, answered: float) -> dict[str, float]:
    return {"pystart_ms": BEGIN + sent, "pyend_ms": BEGIN + answered, "pyduration_ms": answered - sent}


def aws(n: int, sent: float, start: float, end: float, answered: float, instance: str) -> dict[str, Any]:
    data = {"initTime_ms": BEGIN + start, "endTime_ms": BEGIN + end, "duration_ms": end - start, "funcActivationID": f"id-{n}"}
    data |= {"hostname": "169.254.1.2", "hostnameIP": "169.254.1.2", "containerID": f"2:cpu:/sandbox-root-{instance}", "mem_limit": "2048"}
    metadata = {"RequestId": f"id-{n}", "HTTPStatusCode": 200, "HTTPHeaders": {"connection": "keep-alive"}, "RetryAttempts": 0}
    return {**client(sent, answered), "func_data": {**data, "uptime": f"{3000 + n}.91"}, "metadata": metadata}


def azure(n: int, sent: float, start: float, end: float, answered: float, instance: str) -> dict[str, Any]:
    times = {"start": int(BEGIN + start), "end": int(BEGIN + end), "duration": int(end - start)}
    return {**client(sent, answered), **times, "invocation": f"id-{n}", "instance": instance}


def gcp(n: int, sent: float, start: float, end: float, answered: float, instance: Optional[str]) -> dict[str, Any]:
    if instance is None:
        refused = '\n<html><head>\n<title>500 Server Error</title>\n</head>\n<body text=#000000>\n<h1>Error: Server Error</h1></body></html>\n'
        return {**client(sent, answered), "func_data": refused}
    data = {"initTime_ms": BEGIN + start, "endTime_ms": BEGIN + end, "duration_ms": end - start, "executionID": f"id-{n}", "containerID": instance}
    return {**client(sent, answered), "func_data": data}


def ibm(n: int, sent: float, start: float, end: float, answered: float, instance: str) -> dict[str, Any]:
    around = {"ow_func_start_ms": int(BEGIN + start), "ow_func_end_ms": int(BEGIN + end), "ow_func_duration_ms": int(end - start)}
    data = {"containerID": instance, "duration_ms": end - start, "endTime_ms": BEGIN + end, "funcActivationID": f"id-{n}", "hostname": "action"}
    data |= {"hostnameIP": "192.168.0.78", "initTime_ms": BEGIN + start, "uptime": str(1000.0 + start / 1000 + 700 * (n // 4))}
    return {**client(sent, answered), **around, "func_data": data, "wait_time": 61, "init_time": 788 if n % 2 else 0, "mem_lim": 256}


def file(folder: Path, name: str, rows: list[Any]) -> Path:
    path = folder / name
    path.write_text(joined(rows))
    return path


def test_files_of_aws(tmp_path: Path) -> None:
    rows = [aws(n, n, 90 + n, 1100 + n, 1200 + n, f"box{n}") for n in range(200)]
    run = read(file(tmp_path, "work2g_size=200.json", rows))
    assert run.title == "200/?/C/b on AWS Lambda" and run.invocations[0].id == "id-0 (record 0)"
    one, numbers = run.invocations[7], measure(run)
    assert (one.memory_mib, one.hostname, one.uptime_s) == (2048, "169.254.1.2", 3007.91)
    assert (numbers.degree, numbers.completion_ms, numbers.failures, numbers.cold) == (200, 1399.0, {}, None)
    assert numbers.machines_by == "uptime"
    assert any("prints 1.5 s and 200 (100 %)" in remark and "gives 1.40 s and 200 (100 %)" in remark for remark in table.remarks(run, numbers))


def test_files_of_azure_with_clocks_that_are_wrong(tmp_path: Path) -> None:
    # The clocks of even instances are 241 ms ahead: functions seem to end after their answers.
    rows = [azure(n, n, wait := 1000 * (n // 4) + 241 * (n % 2 == 0) + 20, wait + 990, 1000 * (n // 4) + 1015, f"vm{n % 4}") for n in range(16)]
    run = read(file(tmp_path, "limit1p_size=16.json", rows))
    numbers = measure(run)
    assert run.title == "16/?/C/1536 on Azure Functions" and run.experiment.iterations == 20_000_000
    assert (numbers.degree, numbers.instances, numbers.shifted, numbers.impossible) == (4, 4, 2, 0)
    assert numbers.offsets["vm0"].shift_ms == 241 + 20 + 990 - 1015 and numbers.offsets["vm1"].shift_ms == 0
    assert any("2 of 4 instances have clocks that are provably wrong, by 236 ms to 236 ms" in remark for remark in table.remarks(run, numbers))


def test_files_of_gcp_with_refusals(tmp_path: Path) -> None:
    rows = [gcp(n, n, 300, 1700, 1800, f"box{n % 5}" if n % 3 else None) for n in range(30)]
    run = read(file(tmp_path, "work_size=30.json", rows))
    numbers = measure(run)
    assert run.title == "30/?/C/s on Google Cloud Functions"
    assert numbers.failures == {"refused 500": 10} and numbers.ran == 20 and numbers.instances == 5
    assert run.invocations[0].error == "500 Server Error"
    only = read(file(tmp_path, "work_size=1.json", rows[:1]))
    assert only.platform == "Google Cloud Functions" and measure(only).degree == 0
    assert table.answers(measure(only))[0] == "Nothing ran: all 1 invocations failed."


def test_files_of_ibm_with_machines_and_cold_starts(tmp_path: Path) -> None:
    rows = [ibm(n, n, 600 + 3000 * (n % 2), 1610 + 3000 * (n % 2), 1900 + 3000 * (n % 2), f"box{n}") for n in range(12)]
    run = read(file(tmp_path, "sleep_size=12.json", rows))
    numbers = measure(run)
    assert run.title == "12/?/S/s on IBM Cloud Functions"
    assert (numbers.cold, numbers.machines, numbers.machines_by, numbers.alone_ms) == (6, (4, 4, 4), "uptime", 1000.0)
    assert 2900 < (numbers.cold_median_ms or 0) < 3100 and run.invocations[1].extra == {"init_ms": 788.0, "wait_ms": 61.0}


def test_invocations_without_a_record_are_lost(tmp_path: Path) -> None:
    run = read(file(tmp_path, "sleep_size=200.json", [aws(n, n, 90, 1100, 1200, f"box{n}") for n in range(197)]))
    numbers = measure(run)
    assert (numbers.invocations, numbers.failures) == (200, {"lost: no record": 3})
    assert any("197 invocations, but 200 were sent" in remark for remark in table.remarks(run, numbers))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[:-300], "record 2 (line "),
        (lambda text: text.replace('"endTime_ms": 1588000001102.0', '"endTime_ms": "soon"'), "'endTime_ms' is 'soon'"),
        (lambda text: text.replace('"containerID": "2:cpu:/sandbox-root-box1",', ""), "record 1 (line 26): the instance is None"),
        (lambda text: text.replace('"pystart_ms": 1588000000001.0,', ""), "record 1 (line 26): 'pystart_ms' is missing"),
        (lambda text: text + "\n7,", "record 3 (line 74) is no object; remove it"),
        (lambda text: '{"pystart_ms": 1, "pyend_ms": 2},', "no record has the members of AWS, Azure, GCP or IBM"),
    ],
)
def test_a_damaged_file_of_the_study_is_refused_with_its_record(tmp_path: Path, change: Any, told: str) -> None:
    path = tmp_path / "work_size=3.json"
    path.write_text(change(joined([aws(n, n, 90, 1100 + n, 1200 + n, f"box{n}") for n in range(3)])))
    with pytest.raises(RunError) as raised:
        read(path)
    assert told in str(raised.value)


def example(count: int = 3) -> Run:
    rows = [
        Invocation(
            f"id {n}", BEGIN + n, BEGIN + 50 + n, None, BEGIN + 10, BEGIN + 40, f"box {n}", 1, "boot", 12.5, "host", "1 × cpu", 256, "ok", None, {"run": "π"}
        )
        for n in range(count - 1)
    ]
    rows.append(Invocation("last", BEGIN, BEGIN + 5, status="refused", error="429 no", extra={"http_status": 429}))
    return Run(Experiment(count, 1, "C", 1000, 256, False, 29.5), "local", tuple(rows), Client(2, "2026-01-01", 1.5), ("box 0",))


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = example()
    write(run, tmp_path / "run.json")
    again = read(tmp_path / "run.json")
    assert again.source == str(tmp_path / "run.json")
    assert (again.experiment, again.client, again.invocations, again.warmed) == (run.experiment, run.client, run.invocations, run.warmed)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["format"] == "millrace-parallelism/1"


def changed(change: Any) -> str:
    document = json.loads(_text())
    change(document)
    return json.dumps(document)


def _text() -> str:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(example(), Path(folder) / "run.json")
        return (Path(folder) / "run.json").read_text()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(format="millrace-parallelism/2"), "'millrace-parallelism/2'; this version of Millrace reads millrace-parallelism/1: install"),
        (lambda d: d.pop("format"), "no member 'format'; give a file that"),
        (lambda d: d["invocations"].pop(1), "2 of the 3 invocations that 'experiment' names; records are missing"),
        (lambda d: d["invocations"][1].pop("sent_ms"), "invocations[1] (id 1): 'sent_ms' is missing; remove the record"),
        (lambda d: d["invocations"][1].pop("id"), "invocations[1]: 'id' is missing"),
        (lambda d: d["invocations"][1].update(id="id 0"), "invocations[1] and [0] both have the id 'id 0'; remove one"),
        (lambda d: d["invocations"][1].update(start_ms=None), "invocations[1] (id 1): 'start_ms', 'end_ms' and 'instance' belong together"),
        (lambda d: d["invocations"][1].update(answered_ms=None), "(id 1): the status is ok, but 'answered_ms' is missing; set the status to lost"),
        (lambda d: d["invocations"][2].update(status="ok"), "(last): the status is ok, but 'start_ms', 'end_ms' and 'instance' are missing"),
        (lambda d: d["invocations"][1].update(end_ms=BEGIN + 7), "(id 1): 'end_ms' is 3 ms before 'start_ms'"),
        (lambda d: d["invocations"][1].update(answered_ms=BEGIN), "(id 1): 'answered_ms' is 1 ms before 'sent_ms'"),
        (lambda d: d["invocations"][1].update(received_ms=BEGIN), "(id 1): 'received_ms' is 1 ms before 'sent_ms'"),
        (lambda d: d["invocations"][1].update(status="fine"), "(id 1): the status is 'fine'; it is one of ok, refused, failed, lost"),
        (lambda d: d["invocations"][1].update(nth=0), "(id 1): 'nth' is 0"),
        (lambda d: d["invocations"][1].update(nth=True), "(id 1): 'nth' is True"),
        (lambda d: d["invocations"][1].update(sent_ms="now"), "(id 1): 'sent_ms' is 'now'; it is a number"),
        (lambda d: d["invocations"][1].update(extra=[]), "(id 1): 'extra' is no object"),
        (lambda d: d["invocations"].__setitem__(0, 7), "invocations[0] is no object; remove it"),
        (lambda d: d.pop("invocations"), "'invocations' is missing or no list"),
        (lambda d: d.pop("client"), "'client' is missing or no object"),
        (lambda d: d["experiment"].update(task="X"), "experiment: the task is 'X'; it is one of S, C, M"),
        (lambda d: d["experiment"].pop("invocations"), "experiment: 'invocations' is missing"),
        (lambda d: d["experiment"].update(asynchronous=1), "experiment: 'asynchronous' is 1; it is true or false"),
        (lambda d: d.update(warmed=[1]), "'warmed' is no list of instances"),
    ],
)
def test_a_broken_run_is_refused_with_its_record(change: Any, told: str) -> None:
    with pytest.raises(RunError) as raised:
        parse(changed(change), "run.json")
    assert told in str(raised.value) and str(raised.value).startswith("run.json: ")


def test_numbers_that_json_does_not_have_are_refused() -> None:
    for number in ("NaN", "Infinity", "1e999"):
        with pytest.raises(RunError, match=r"invocations\[0\] \(id 0\): 'uptime_s' is"):
            parse(_text().replace('"uptime_s": 12.5', f'"uptime_s": {number}', 1))


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    text, draw = _text().rstrip(), random.Random(7)
    for length in [0, 1, len(text) - 1, *(draw.randrange(len(text)) for _ in range(60))]:
        (tmp_path / "run.json").write_text(text[:length])
        with pytest.raises(RunError):
            read(tmp_path / "run.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"{\xff")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    for path, told in ((tmp_path / "none.json", "No such file"), (tmp_path / "bytes.json", "is not UTF-8"), (tmp_path / "deep.json", "nested too deep")):
        with pytest.raises(RunError, match=told):
            read(path)
    with pytest.raises(RunError, match="cannot be written"):
        write(example(), tmp_path / "none" / "run.json")


def test_the_notation_of_experiments() -> None:
    about = parse_experiment("200/50/C/b")
    assert (about.invocations, about.warm_expected, about.task, about.memory_mib, about.iterations) == (200, 50, "C", 2048, 5_000_000)
    for name in ("200/50/C/b", "10/0/S/s", "1000/0/M/1024"):
        assert parse_experiment(name).name == name
    for wrong in ("", "200", "200/50/X/b", "0/0/S/s", "200/50/C/0", "9999999/0/S/s", "200000/0/S/s", "-1/0/S/s", "2/0/S/s/"):
        with pytest.raises(RunError, match="limit|write I/W/T/M"):
            parse_experiment(wrong)


def test_study_files_are_told_from_runs() -> None:
    assert not study.is_study(_text()) and not study.is_study("") and not study.is_study("[1, 2]")
    assert study.is_study(joined([azure(0, 0, 1, 2, 3, "vm")]))
