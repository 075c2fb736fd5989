"""How parallel are a platform's functions? `python -m millrace.parallelism 200/50/C/b --on local -o run.json` measures it.

The experiment is that of Barcelona-Pons and García-López, "Benchmarking parallelism in FaaS platforms" (2021): many invocations at once, of
which each says when it ran, and in which instance of the function. `record` has the format of a run, `study` reads the files of that
study, `metrics` computes the figures, and `chart` draws who ran when.
"""

from __future__ import annotations

from millrace.parallelism.metrics import Metrics, measure
from millrace.parallelism.record import Experiment, Invocation, Run, RunError, read, write

__all__ = ["Experiment", "Invocation", "Metrics", "Run", "RunError", "measure", "read", "write"]
