"""`reported` -> `comments`: the report as a comment on the submission. Nobody outside sees it before the database has the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record


def post_process(record: Record, ctx: Context) -> None:
    key = record.json()["submission"]
    ctx.append("comments", {"submission": key, "comment": ctx.table("reports")[key]})
