"""Writes the application for a set of sensors: the `millrace.toml` of this example is its output for the data here."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .host import Failed
from .units import duration

EXAMPLE = Path(__file__).resolve().parents[1]
SDK_C = EXAMPLE.parents[1] / "sdk" / "c"
SMOOTH = ("python", "wasm", "native")


@dataclass(frozen=True)
class Settings:
    """The settings of the functions."""

    sensors: tuple[str, ...]
    step_s: int = 3600
    window_s: int = 10_800
    age_s: int = 86_400
    train_s: int = 28 * 86_400
    silent_s: int = 12 * 3600
    history: int = 10_000
    pending_max: int = 100_000
    smooth: str = "python"
    python: str = "../../.venv/bin/python"
    namespace: str = ".millrace"


def text(settings: Settings) -> str:
    """The application file."""
    sensors, s = settings.sensors, settings
    logs = [f"{stage}/{name}" for stage in ("raw", "smooth") for name in (*sensors, "truth")] + ["model", "prediction"]
    common = {"SILENT_S": s.silent_s, "HISTORY": s.history, "SENSORS": " ".join(sensors)}
    return "\n".join(
        [
            f"# Estimates the temperature where there is no thermometer, from {' and '.join(sensors)}. See README.md.",
            f'\n[namespace]\npath = "{s.namespace}"\n',
            *(f'[logs."{log}"]\nhistory = {s.history}' for log in logs),
            f"\n# Aligns to steps of {duration(s.step_s)}, and averages over {duration(s.window_s)}.",
            f"[functions.smooth]\n{smooth_code(s)}",
            f"pending_max = {s.pending_max}",
            listed("on", [f"raw/{name}" for name in (*sensors, "truth")]),
            f"\n# Refits the model to the last {duration(s.train_s)}: "
            f"whenever these data have grown by an eighth, and every {duration(s.age_s)}.",
            "[functions.train]",
            python_code(s, "train"),
            env(AGE_S=s.age_s, TRAIN_S=s.train_s, **common, OPENBLAS_NUM_THREADS=1),
            'monitor = "model"\non = ["smooth/truth"]\nmemory = "2GiB"  # numpy reserves far more than it uses',
            f"\n# Estimates a step when all sensors are in; waits {duration(s.silent_s)} for one. "
            "Because of the monitor never while train runs.",
            "[functions.predict]",
            python_code(s, "predict"),
            env(**common),
            'monitor = "model"',
            listed("on", [f"smooth/{name}" for name in sensors]),
            "",
        ]
    )


def python_code(settings: Settings, name: str) -> str:
    return f'runtime = "python"\npython = "{settings.python}"\ncode = "functions"\nhandler = "{name}:{name}"'


def smooth_code(settings: Settings) -> str:
    if settings.smooth == "wasm":
        return 'runtime = "wasm"\ncode = "smooth.wasm"'
    if settings.smooth == "native":
        return 'runtime = "process"\ncode = "smooth"\ncommand = ["./smooth"]'
    return python_code(settings, "smooth") + "\n" + env(STEP_S=settings.step_s, WINDOW_S=settings.window_s)


def env(**variables: object) -> str:
    return "env = { " + ", ".join(f'{name} = "{value}"' for name, value in variables.items()) + " }"


def listed(key: str, values: list[str]) -> str:
    return f"{key} = [" + ", ".join(f'"{value}"' for value in values) + "]"


def write(settings: Settings, directory: Path) -> Path:
    """Puts the application file and the code it names into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        EXAMPLE / "functions", directory / "functions", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    if settings.smooth != "python":
        compile_smooth(settings, directory)
    path = directory / "millrace.toml"
    path.write_text(text(settings), encoding="utf-8")
    return path


def compile_smooth(settings: Settings, directory: Path) -> None:
    """Compiles `smooth.c` for the step and window: to Wasm, or to a program."""
    source = str(EXAMPLE / "functions" / "smooth.c")
    common = [
        "-O2",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffp-contract=off",
        f"-I{SDK_C}",
        f"-DSTEP_S={settings.step_s}",
        f"-DWINDOW_S={settings.window_s}",
    ]
    if settings.smooth == "wasm":
        command = [
            "clang",
            "--target=wasm32",
            "-nostdlib",
            "-Wl,--no-entry",
            *common,
            source,
            "-o",
            str(directory / "smooth.wasm"),
        ]
    else:
        (directory / "smooth").mkdir(exist_ok=True)
        command = ["cc", *common, source, "-o", str(directory / "smooth" / "smooth")]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise Failed(f"'{command[0]}' is needed to compile smooth.c: run `make setup`") from None
    except subprocess.CalledProcessError:
        raise Failed("smooth.c does not compile; see above") from None
