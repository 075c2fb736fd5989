"""The ids of the normative statements of MQTT 3.1.1 and 5.0, as appendix B of each lists them: how many each section has."""

from __future__ import annotations

V3 = """
1.5.3 3, 2.2.2 2, 2.3.1 7,
3.1.0 2, 3.1.2 24, 3.1.3 11, 3.1.4 5, 3.2.0 1, 3.2.2 6, 3.3.1 12, 3.3.2 3, 3.3.4 1, 3.3.5 2, 3.6.1 1, 3.8.1 1, 3.8.3 4, 3.8.4 6,
3.9.3 2, 3.10.1 1, 3.10.3 2, 3.10.4 6, 3.12.4 1, 3.14.1 1, 3.14.4 3,
4.1.0 2, 4.3.1 1, 4.3.2 2, 4.3.3 2, 4.4.0 1, 4.5.0 2, 4.6.0 6, 4.7.1 3, 4.7.2 1, 4.7.3 4, 4.8.0 2,
6.0.0 4, 7.0.0 2, 7.1.1 1, 7.1.2 1
"""
# 2.2.1 begins with its second statement.
V5 = """
1.5.4 3, 1.5.5 1, 1.5.7 1, 2.1.3 1, 2.2.1 6, 2.2.2 1,
3.1.0 2, 3.1.2 30, 3.1.3 12, 3.1.4 6, 3.2.0 2, 3.2.2 22, 3.3.1 13, 3.3.2 20, 3.3.4 10, 3.4.2 3, 3.5.2 3, 3.6.1 1, 3.6.2 3, 3.7.2 3,
3.8.1 1, 3.8.3 5, 3.8.4 8, 3.9.2 2, 3.9.3 2, 3.10.1 1, 3.10.3 2, 3.10.4 6, 3.11.2 2, 3.11.3 2, 3.12.4 1, 3.14.0 1, 3.14.1 1, 3.14.2 4,
3.14.4 3, 3.15.1 1, 3.15.2 3,
4.1.0 2, 4.2.0 1, 4.3.1 1, 4.3.2 5, 4.3.3 13, 4.4.0 2, 4.5.0 2, 4.6.0 6, 4.7.0 1, 4.7.1 2, 4.7.2 1, 4.7.3 4, 4.8.2 6, 4.9.0 3,
4.12.0 7, 4.12.1 2, 4.13.1 1, 4.13.2 1,
6.0.0 4
"""


def expand(sections: str) -> list[str]:
    found = []
    for section in sections.replace("\n", " ").split(","):
        name, count = section.split()
        found += [f"{name}-{number}" for number in range(1, int(count) + 1)]
    return found


def of_version(level: int) -> list[str]:
    """Level 4 is 3.1.1, and 5 is 5.0."""
    return expand(V3) if level == 4 else [found for found in expand(V5) if found != "2.2.1-1"]
