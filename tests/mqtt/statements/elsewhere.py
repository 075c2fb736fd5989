"""What becomes of the statements that no case of this folder proves."""

from __future__ import annotations

from ids import expand

# Statements about what a client, or whoever writes one, does.
CLIENT = {
    4: "2.3.1-2 2.3.1-3 3.1.2-23 3.1.3-7 3.14.4-1 3.14.4-2 4.5.0-2 7.1.2-1",
    5: "3.1.2-20 3.1.2-21 3.1.2-30 3.2.2-4 3.2.2-5 3.2.2-11 3.2.2-14 3.2.2-15 3.2.2-17 3.2.2-18 3.2.2-21 3.3.2-10 3.3.2-14 3.3.4-8 "
    "4.5.0-2 4.12.0-3 4.12.0-7 4.12.1-1",
}
# Tests elsewhere in tests/mqtt.
ELSEWHERE = {
    4: {
        "3.1.2-24": "test_hostile.py::test_a_client_that_is_silent_for_too_long_is_gone_and_its_will_is_appended",
        "7.0.0-1": "test_bridge.py::test_a_bridge_hands_on_both_ways_and_with_prefixes",
        "7.0.0-2": "test_clients.py::test_a_message_is_a_record_and_runs_functions",
    },
    5: {
        "3.1.2-22": "test_hostile.py::test_a_client_that_is_silent_for_too_long_is_gone_and_its_will_is_appended",
        "3.1.3-9": "test_connections.py::test_the_will_of_a_client_that_is_back_is_not_appended",
    },
}
# The host does not have what they are about, or has it without a limit, so there is nothing to see.
UNUSED = {
    4: {
        "3.8.3-2": "about servers without wildcards",
        "4.7.3-3": "the length of a text has two bytes",
        "4.8.0-2": "an append that finds no room is tried again, so no error of this kind reaches a client",
        **dict.fromkeys(expand("6.0.0 4"), "the host does not speak MQTT over WebSocket"),
    },
    5: {
        **dict.fromkeys(["3.2.2-9", "3.2.2-10", "3.2.2-12"], "about servers without quality 1 or 2"),
        "3.2.2-13": "the host does not say that it retains nothing",
        "3.2.2-20": "the host names no other server",
        **dict.fromkeys(["3.6.2-2", "3.6.2-3", "3.7.2-2", "3.7.2-3"], "its PUBREL and PUBCOMP have no properties"),
        **dict.fromkeys(["3.14.2-3", "3.14.2-4"], "its DISCONNECT has no properties"),
        **dict.fromkeys(["3.15.2-1", "3.15.2-2", "3.15.2-3", "4.12.0-2", "4.12.0-5", "4.12.1-2"], "the host sends no AUTH (ADR 118)"),
        **dict.fromkeys(["4.3.3-7", "4.3.3-13"], "messages do not expire (ADR 117)"),
        "4.7.3-3": "the length of a text has two bytes",
        **dict.fromkeys(expand("6.0.0 4"), "the host does not speak MQTT over WebSocket"),
    },
}
RETAINED = "a rule retains the newest record, with and without the flag RETAIN (ADR 117)"
QUALITY = "a record has no quality: a message has the one that was granted, also if it was published with less"
# What this host does otherwise, and why.
DECIDED = {
    4: {
        "3.3.1-12": RETAINED,
        "3.8.4-6": QUALITY,
    },
    5: {
        "3.3.1-8": RETAINED,
        "3.8.4-8": QUALITY,
        "3.3.1-13": "the flag RETAIN of a message is not stored (ADR 117)",
        **dict.fromkeys(["3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-20"], "of a message's properties, only the user's are stored (ADR 117)"),
        **dict.fromkeys(["3.3.2-5", "3.3.2-6"], "messages do not expire: a log has a history instead (ADR 117)"),
    },
}


def without_a_case(level: int) -> dict[str, str]:
    """Each with its reason."""
    found = dict.fromkeys(CLIENT[level].split(), "the client's part")
    for group in [ELSEWHERE[level], UNUSED[level], DECIDED[level]]:
        for name, reason in group.items():
            assert name not in found, f"{name} is listed twice"
            found[name] = reason
    return found
