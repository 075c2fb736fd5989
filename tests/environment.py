"""Makes a virtual environment with nothing but this repository's Python package, some of its extras, and what those need.

    environment.py DIR [EXTRA…]

Run by a Python that has all of them installed: packages are linked from there, so nothing is downloaded. A guide that tells
its reader to install the package with an extra is tried in such an environment.
"""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent / "sdk/python/pyproject.toml"


def needed(extras: list[str]) -> set[str]:
    """The names of all packages that the package with these extras needs, and its own."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = project["dependencies"] + [text for extra in extras for text in project["optional-dependencies"][extra]]
    names, left = {project["name"]}, [Requirement(text) for text in wanted]
    while left:
        requirement = left.pop()
        if requirement.name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(requirement.name)
        left += [Requirement(text) for text in importlib.metadata.requires(requirement.name) or ()]
    return names


def link(name: str, packages: Path) -> None:
    """Links what a package has installed beside its like; scripts stay where they are."""
    package = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        target = packages / top
        if not target.exists():
            target.symlink_to(package.locate_file(top))


def main() -> None:
    directory, *extras = sys.argv[1:]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (packages,) = Path(directory).glob("lib/python*/site-packages")
    for name in needed(extras):
        link(name, packages)
    print(os.path.join(directory, "bin"))


if __name__ == "__main__":
    main()
