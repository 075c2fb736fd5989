"""Millrace: functions that run when a record is appended to a log.

    from millrace import Context, Record

    def smooth(record: Record, ctx: Context) -> None:
        ctx.append("clean/kitchen", {"celsius": record.json()["celsius"]})

Inside a worker this package is always there, installed or not.
"""

from millrace._worker import Context, Error, Record

__all__ = ["Context", "Error", "Record"]
