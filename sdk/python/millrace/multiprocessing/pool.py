"""The names of `multiprocessing.pool`."""

from __future__ import annotations

from millrace.multiprocessing import AsyncResult, Pool
from millrace.multiprocessing._pools import IMapIterator

__all__ = ["AsyncResult", "IMapIterator", "Pool"]
