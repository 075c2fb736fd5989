"""Runs for each record of the log `inbox`, and appends a greeting to `outbox`."""


def hello(record, ctx):
    # The appends of a run become visible together when it succeeds. If this function raises an exception, there are none.
    ctx.append("outbox", f"Hello, {record.text().strip()}!")
