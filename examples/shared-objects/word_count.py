"""Word count: tasks count the words of a part each, into one shared counter.

    python word_count.py [FILE]

The oracle: the same as `collections.Counter` of the whole.
"""

from __future__ import annotations

import collections
import re
import sys
from pathlib import Path

import millrace


def words(text: str) -> list[str]:
    """The words of a text."""
    return re.findall(r"[a-z']+", text.lower())


def count(part: str, counts: millrace.objects.Counter) -> None:
    """Counts the words of a part, all at one moment."""
    counts.update(words(part))


def main(file: str = __file__, parts: int = 8) -> collections.Counter[str]:
    """The counts of a file's words."""
    lines = Path(file).read_text().splitlines()
    with millrace.connect() as host, host.Executor() as executor:
        counts = host.Counter("words")
        list(executor.map(count, ["\n".join(lines[at::parts]) for at in range(parts)], [counts] * parts))
        counted = collections.Counter(dict(counts.items()))
        common = counts.most_common(5)
    expected = collections.Counter(words("\n".join(lines)))
    assert counted == expected
    assert [n for _, n in common] == [n for _, n in expected.most_common(5)]
    return counted


if __name__ == "__main__":
    for word, times in main(*sys.argv[1:]).most_common(5):
        print(f"{times:6} {word}")
