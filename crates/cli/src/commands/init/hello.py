"""Greets whatever is appended to the log `inbox`."""


def hello(record, ctx):
    # What a run appends is published when it has succeeded, or not at all: raise, and nothing happened.
    ctx.append("outbox", f"Hello, {record.text().strip()}!")
