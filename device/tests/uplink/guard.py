#!/usr/bin/env python3
"""spec/vectors/capability.json as tables for guard.c: guard.py FILE prints them.

A device verifies plain tokens of at most 256 bytes and 5 blocks, and refuses others. It knows no address and no key of a peer.
"""

import hashlib
import hmac
import json
import sys
from pathlib import Path

RIGHTS = ["read", "append", "create", "delete", "bind", "run", "call", "observe", "repair", "link", "admin", "grant"]
KINDS = {"namespace": 0, "log": 1, "function": 2, "object": 3, "store": 4, "peer": 5}
WAYS = {"unix": 1, "channel": 2, "tls": 4, "http": 8}
PURPOSES = {"request": 0, "delivery": 1, "redeem": 2}


def array(data: bytes) -> str:
    return "{" + ", ".join(map(str, data or b"\0")) + "}"


def tags(body: bytes) -> set[int]:
    """The tags of the items of a plain body."""
    found, at = set(), 12
    while at < len(body):
        end = at + 2 + int.from_bytes(body[at:at + 2], "little")
        at += 2
        while at < end:
            found.add(body[at])
            at += 2 + body[at + 1]
    return found


def is_for_devices(body: bytes) -> bool:
    return body[:1] == b"\1" and len(body) <= 256 and body[11] <= 5


def mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def main() -> None:
    vectors = json.loads(Path(sys.argv[1]).read_text())
    tokens = {token["name"]: token for token in vectors["tokens"]}
    print("static const mrd_key keys[] = {")
    for key in vectors["keys"]:
        print(f"    {{{array(bytes.fromhex(key['authority']))}, {key['generation']}, {array(bytes.fromhex(key['key']))}}},")
    print("};\nstatic const vector vectors[] = {")
    rows = [(token["name"], bytes.fromhex(token["body"]), bytes.fromhex(token["signature"]), is_for_devices(bytes.fromhex(token["body"])))
            for token in tokens.values()]
    rows += [(token["name"], bytes.fromhex(token["body"]), b"", False) for token in vectors["malformed"]]
    for name, body, signature, good in rows:
        print(f"    {{{json.dumps(name)}, (const uint8_t[]){array(body)}, {len(body)}, (const uint8_t[]){array(signature)}, {int(good)}}},")
    print("};\nstatic const vector forged[] = {")
    for token in vectors["forged"]:
        data = bytes.fromhex(token["token"])
        revoked = b"".join(map(bytes.fromhex, token["revoked"]))
        if not revoked:
            print(f"    {{{json.dumps(token['name'])}, (const uint8_t[]){array(data[:-32])}, {len(data) - 32}, (const uint8_t[]){array(data[-32:])}, 0}},")
    print("};\nstatic const evaluation evaluations[] = {")
    for one in vectors["evaluations"]:
        body = bytes.fromhex(tokens[one["token"]]["body"])
        if not is_for_devices(body) or tags(body) & {6, 7, 8}:
            continue
        revoked = one["revoked"]
        ids = array(bytes.fromhex("".join(revoked)))
        source = int.from_bytes(bytes.fromhex(one["source"]), "little") if isinstance(one["source"], str) else one["source"] or 0
        print(f"    {{{json.dumps(one['token'])}, (const uint8_t[]){array(body)}, {len(body)}, {{{1 << RIGHTS.index(one['right'])}, "
              f"{KINDS[one['kind']]}, {PURPOSES[one['purpose']]}, {WAYS[one['way']]}, {json.dumps(one['name'] or '')}, "
              f"{len((one['name'] or '').encode())}, {one['bytes']}, {source}u, {one['now'] or 0}}}, "
              f"(const uint8_t[]){ids}, {len(revoked)}, {int(one['permitted'])}}},")
    print("};\nstatic const shake shakes[] = {")
    for one in vectors["channels"]:
        m1, m2, token = bytes.fromhex(one["m1"]), bytes.fromhex(one["m2"]), tokens[one["token"]]
        body, signature = bytes.fromhex(token["body"]), bytes.fromhex(token["signature"])
        master = mac(hashlib.sha256(m1 + m2[:-16]).digest(), mac(signature, b"\2channel"))
        exporter = mac(master, b"millrace exporter\1")
        nonce = bytes.fromhex(one["client_nonce"])
        print(f"    {{(const uint8_t[]){array(body + signature)}, {len(body) + 32}, {array(nonce)}, {one['client_takes']}, "
              f"{array(m2)}, {array(exporter)}}},")
    print("};")


if __name__ == "__main__":
    main()
