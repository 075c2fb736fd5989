"""Writes a package of a Lambda function: `python -m millrace.lambda_handler FILE.zip`."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import cloudpickle

import millrace


def write(file: Path) -> None:
    """The installed packages millrace and cloudpickle, as they are."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as package:
        for module in (millrace, cloudpickle):
            folder = Path(str(module.__file__)).parent
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    package.write(path, path.relative_to(folder.parent))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m millrace.lambda_handler",
        description="Write the package of an AWS Lambda function that runs tasks of millrace.Executor(backend='lambda'). "
        "Deploy it with the handler millrace.lambda_handler.handler, on this version of Python and this kind of processor.",
    )
    parser.add_argument("file", type=Path, help="the archive, such as function.zip")
    file = parser.parse_args().file
    write(file)
    print(f"{file}: {file.stat().st_size} bytes, handler millrace.lambda_handler.handler")


main()
