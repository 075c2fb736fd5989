"""Writes the package of the benchmark's function for a platform."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Union

from millrace.parallelism import task
from millrace.parallelism.record import RunError

_AZURE = {
    "scriptFile": "task.py",
    "entryPoint": "main",
    "bindings": [
        {"authLevel": "function", "type": "httpTrigger", "direction": "in", "name": "request", "methods": ["post"]},
        {"type": "http", "direction": "out", "name": "$return"},
    ],
}
_HOST = {"version": "2.0", "extensions": {"http": {"routePrefix": "api", "maxConcurrentRequests": 1}}}
_DOCKERFILE = 'FROM python:3-slim\nCOPY task.py /task.py\nCMD ["python", "/task.py", "serve"]\n'
_PROCFILE = "web: python task.py serve\n"

#: The files of each platform's package, and how to deploy it. TASK is task.py.
_FILES: dict[str, dict[str, str]] = {
    "lambda": {"task.py": "TASK"},
    "openwhisk": {"__main__.py": "TASK"},
    "gcp": {"main.py": "TASK", "requirements.txt": ""},
    "azure": {
        "parallelism/task.py": "TASK",
        "parallelism/function.json": json.dumps(_AZURE, indent=2),
        "host.json": json.dumps(_HOST, indent=2),
        "requirements.txt": "",
    },
    "knative": {"task.py": "TASK", "Dockerfile": _DOCKERFILE, "Procfile": _PROCFILE},
}
_ADVICE = {
    "lambda": "aws lambda create-function --function-name parallelism --runtime python3.12 --handler task.handler --memory-size 2048 "
    "--timeout 300 --role ROLE --zip-file fileb://{file}",
    "openwhisk": "wsk action create parallelism {file} --kind python:3 --memory 2048",
    "gcp": "unzip {file} -d parallelism && gcloud functions deploy parallelism --gen2 --runtime python312 --entry-point main --trigger-http "
    "--memory 2048MiB --concurrency 1 --source parallelism",
    "azure": "az functionapp deployment source config-zip --resource-group GROUP --name APP --src {file}",
    "knative": "unzip {file} -d parallelism && kn func deploy, or build its Dockerfile and deploy the image",
}
PLATFORMS = tuple(_FILES)


def write(platform: str, path: Union[str, os.PathLike[str]]) -> str:
    """Writes FILE.zip, the same bytes each time, and returns how to deploy it."""
    if platform not in _FILES:
        raise RunError(f"--for {platform}: there is no such platform; it is one of {', '.join(PLATFORMS)}")
    file = Path(path)
    source = Path(task.__file__).read_text(encoding="utf-8")
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in _FILES[platform].items():
                entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, source if content == "TASK" else content)
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror}") from None
    return _ADVICE[platform].format(file=file)
