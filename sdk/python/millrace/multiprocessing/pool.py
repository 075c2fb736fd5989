"""The names of `multiprocessing.pool`."""

from __future__ import annotations

from millrace.multiprocessing import AsyncResult, Pool

__all__ = ["AsyncResult", "Pool"]
