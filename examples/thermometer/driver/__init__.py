"""The parts of `run.py`: readings -> application -> host -> report (score, chart)."""

from importlib.util import find_spec

if not all(map(find_spec, ("numpy", "matplotlib"))):
    raise SystemExit("numpy and matplotlib are needed: run `make setup`, and then this with .venv/bin/python")
