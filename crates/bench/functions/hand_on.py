"""Hands each record on."""


def hand_on(record, ctx):
    ctx.append("one", record.data)
