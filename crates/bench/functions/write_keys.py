"""Works for a while and writes a key, as often as its record says."""

import time


def write_keys(record, ctx):
    table, count, seconds, value = record.json()
    keys = ctx.table(table)
    for number in range(count):
        if seconds:
            time.sleep(seconds)
        keys[f"k{number}"] = value
