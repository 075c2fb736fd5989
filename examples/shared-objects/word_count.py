"""Word count: processes count the words of a part each, and add them up in one shared dictionary.

    python word_count.py [FILE]

The oracle: the same as `collections.Counter` of the whole.
"""

from __future__ import annotations

import collections
import millrace.multiprocessing as multiprocessing
import re
import sys
from pathlib import Path


def words(text: str) -> list[str]:
    """The words of a text."""
    return re.findall(r"[a-z']+", text.lower())


def count(part: str, counts: dict[str, int], lock: multiprocessing.Lock) -> None:
    """Counts the words of a part."""
    for word, times in collections.Counter(words(part)).items():
        with lock:
            counts[word] = counts.get(word, 0) + times


def main(file: str = __file__, parts: int = 8) -> collections.Counter[str]:
    """The counts of a file's words."""
    lines = Path(file).read_text().splitlines()
    with multiprocessing.Manager() as manager, multiprocessing.Pool(4) as pool:
        counts, lock = manager.dict(), manager.Lock()
        pool.starmap(count, [("\n".join(lines[at::parts]), counts, lock) for at in range(parts)])
        counted = collections.Counter(counts.copy())
    expected = collections.Counter(words("\n".join(lines)))
    assert counted == expected
    return counted


if __name__ == "__main__":
    for word, times in main(*sys.argv[1:]).most_common(5):
        print(f"{times:6} {word}")
