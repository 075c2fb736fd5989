"""A second implementation of spec/formats/capability.md, with only HMAC and SHA-256 of Python's library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import struct
from typing import Any

import pytest
from conftest import ROOT

VECTORS = json.loads((ROOT / "spec/vectors/capability.json").read_text())
RIGHTS = "read append create delete bind run call observe repair link admin grant".split()
KINDS = "namespace log function object store peer".split()
WAYS = {"unix": 1, "channel": 2, "tls": 4, "http": 8}
TAGS = {
    "grant": 1, "not_after": 2, "not_before": 3, "record_max": 4, "way": 5, "peer_net": 6, "peer_key": 7,
    "rate": 8, "source": 9, "once": 10, "id": 16, "subject": 17, "label": 18,
}  # fmt: skip
REPEATED = {1, 6, 7, 9, 16}

Item = tuple[int, bytes]


class Refused(Exception):
    """The bytes are not a capability, or not a valid one."""


def mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


# Bytes


def encode(items: list[dict[str, Any]]) -> bytes:
    """A block, with its length."""
    made = b""
    for item in items:
        [(name, value)] = item.items()
        if name == "grant":
            rights = sum(1 << RIGHTS.index(right) for right in value["rights"])
            kind = KINDS.index(value["kind"]) | value["subtree"] << 7
            data = struct.pack("<BH", kind, rights) + value["name"].encode()
        elif name in ("not_after", "not_before", "record_max"):
            data = struct.pack("<I", value)
        elif name == "way":
            data = bytes([sum(WAYS[way] for way in value)])
        elif name == "peer_net":
            address, bits = value.split("/")
            data = bytes([int(bits)]) + ipaddress.ip_address(address).packed
        elif name in ("peer_key", "id"):
            data = bytes.fromhex(value)
        elif name == "rate":
            data = struct.pack("<HH", *value)
        elif name == "source":
            data = value.to_bytes(6, "little")
        elif name == "once":
            data = b""
        else:
            data = value.encode()
        made += bytes([TAGS[name], len(data)]) + data
    return struct.pack("<H", len(made)) + made


def check_item(tag: int, value: bytes) -> None:
    size = len(value)
    if tag == 1:
        if size < 3:
            raise Refused
        kind, rights = struct.unpack_from("<BH", value)
        subtree, kind, name = kind >> 7, kind & 127, value[3:]
        if kind >= len(KINDS) or rights == 0 or rights >> len(RIGHTS) or len(name) > 252:
            raise Refused
        if (kind == 0 and (subtree or name)) or (kind != 0 and not subtree and not name):
            raise Refused
    elif tag in (2, 3, 4):
        fits = size == 4
    elif tag == 5:
        fits = size == 1 and 0 < value[0] < 16
    elif tag == 6:
        fits = (size == 5 and value[0] <= 32) or (size == 17 and value[0] <= 128)
    elif tag == 7:
        fits = size == 32
    elif tag == 8:
        fits = size == 4 and 0 not in struct.unpack("<HH", value)
    elif tag == 9:
        fits = size == 6 and any(value)
    elif tag == 10:
        fits = size == 0
    elif tag == 16:
        fits = size == 8
    elif tag == 17:
        fits = 1 <= size <= 16
    elif tag == 18:
        fits = 1 <= size <= 32
    else:
        raise Refused
    if tag != 1 and not fits:
        raise Refused


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        if len(self.data) < count:
            raise Refused
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")


def read_items(block: bytes) -> list[Item]:
    reader, items, last = Reader(block), [], 0
    while reader.data:
        tag = reader.number(1)
        value = reader.take(reader.number(1))
        if tag < last or (tag == last and tag not in REPEATED):
            raise Refused
        check_item(tag, value)
        items.append((tag, value))
        last = tag
    return items


def read_blocks(reader: Reader, least: int) -> list[bytes]:
    count = reader.number(1)
    if not least <= count <= 8:
        raise Refused
    blocks = []
    for _ in range(count):
        length = reader.take(2)
        blocks.append(length + reader.take(int.from_bytes(length, "little")))
        read_items(blocks[-1][2:])
    if reader.data:
        raise Refused
    return blocks


class Plain:
    def __init__(self, body: bytes) -> None:
        reader = Reader(body)
        self.head = reader.take(11)
        if self.head[0] != 1:
            raise Refused
        self.authority, self.generation = self.head[1:9].hex(), int.from_bytes(self.head[9:], "little")
        self.blocks = read_blocks(reader, 1)
        tags = [tag for tag, _ in read_items(self.blocks[0][2:])]
        if 1 not in tags or 16 not in tags:
            raise Refused


class Body:
    """A decoded body."""

    def __init__(self, body: bytes) -> None:
        if len(body) + 32 > 1024:
            raise Refused
        if body[:1] != b"\x81":
            self.parts, self.after = [Plain(body)], []
            return
        reader = Reader(body[1:])
        count = reader.number(1)
        if not 2 <= count <= 4:
            raise Refused
        self.parts = [Plain(reader.take(reader.number(2))) for _ in range(count)]
        self.after = read_blocks(reader, 0)

    def sign(self) -> bytes:
        """The signature with the keys of the host; also computes the names of the buckets."""
        signatures: list[bytes] = []
        self.buckets: list[str] = []

        def count(block: bytes, signature: bytes) -> None:
            if any(tag == 8 for tag, _ in read_items(block[2:])):
                self.buckets.append(mac(signature, b"\2rate").hex())

        for part in self.parts:
            keys = [bytes.fromhex(known["key"]) for known in VECTORS["keys"]
                    if (known["authority"], known["generation"]) == (part.authority, part.generation)]  # fmt: skip
            if not keys:
                raise Refused
            signature = mac(keys[0], b"\0" + part.head + part.blocks[0])
            count(part.blocks[0], signature)
            for block in part.blocks[1:]:
                signature = mac(signature, b"\1" + block)
                count(block, signature)
            signatures.append(signature)
        signature = signatures[0] if len(signatures) == 1 else mac(b"millrace merge 1", b"".join(signatures))
        for block in self.after:
            signature = mac(signature, b"\1" + block)
            count(block, signature)
        return signature

    def items(self, part: Plain) -> list[list[Item]]:
        return [read_items(block[2:]) for block in part.blocks + self.after]

    def live(self, revoked: set[bytes]) -> list[Plain]:
        def dead(part: Plain) -> bool:
            return any(tag == 16 and value in revoked for block in self.items(part) for tag, value in block)

        return [part for part in self.parts if not dead(part)]

    def principal(self) -> dict[str, Any]:
        blocks = self.items(self.parts[0])
        first = next(value for tag, value in blocks[0] if tag == 16)
        subject = next((value for block in blocks for tag, value in block if tag == 17), None)
        return {"id": first.hex(), "subject": subject and subject.hex()}


def accept(token: bytes, revoked: set[bytes]) -> Body:
    """The body of a valid token."""
    body, signature = token[:-32], token[-32:]
    read = Body(body)
    if not hmac.compare_digest(read.sign(), signature) or not read.live(revoked):
        raise Refused
    return read


# Rules


def contains(grant: bytes, name: bytes) -> bool:
    own = grant[3:]
    if name == own:
        return True
    return bool(grant[0] >> 7) and (not own or name.startswith(own + b"/"))


def in_network(value: bytes, text: str) -> bool:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    network = ipaddress.ip_network((value[1:], value[0]), strict=False)
    return address.version == network.version and address in network


def block_permits(items: list[Item], case: dict[str, Any]) -> bool:
    def all_of(tag: int) -> list[bytes]:
        return [value for known, value in items if known == tag]

    def covers(grant: bytes) -> bool:
        kind, rights = struct.unpack_from("<BH", grant)
        if not rights >> RIGHTS.index(case["right"]) & 1:
            return False
        if kind == 0:
            return True
        name = case["name"].encode()
        internal = case["kind"] == "log" and name.startswith(b"_")
        return KINDS[kind & 127] == case["kind"] and not internal and contains(grant, name)

    def number(value: bytes) -> int:
        return int.from_bytes(value, "little")

    if (all_of(2) or all_of(3)) and case["now"] is None:
        return False
    rules = [
        all(case["now"] <= number(value) for value in all_of(2)),
        all(case["now"] >= number(value) for value in all_of(3)),
        all(value[0] & WAYS[case["way"]] for value in all_of(5)),
        not all_of(6) or (case["address"] and any(in_network(value, case["address"]) for value in all_of(6))),
        not all_of(7) or (case["key"] and bytes.fromhex(case["key"]) in all_of(7)),
    ]
    if case["purpose"] != "redeem":
        delivered = case["purpose"] == "delivery" and case["source"].to_bytes(6, "little") in all_of(9)
        rules += [
            not all_of(10),
            not all_of(9) or delivered,
            all(case["bytes"] <= number(value) for value in all_of(4)),
            not all_of(1) or any(covers(grant) for grant in all_of(1)),
        ]
    return all(rules)


def permits(body: Body, case: dict[str, Any]) -> bool:
    for part in body.live({bytes.fromhex(text) for text in case["revoked"]}):
        blocks = body.items(part)
        once = any(tag == 10 for block in blocks for tag, _ in block)
        if (case["purpose"] != "redeem" or once) and all(block_permits(block, case) for block in blocks):
            return True
    return False


def intersect_grants(a: bytes, b: bytes) -> bytes | None:
    rights = int.from_bytes(a[1:3], "little") & int.from_bytes(b[1:3], "little")
    if a[0] == 0:
        narrow = b
    elif b[0] == 0:
        narrow = a
    elif a[0] & 127 != b[0] & 127:
        return None
    else:
        below_a = contains(a, b[3:]) and (b[3:] != b"" or a[3:] == b"") and b[0] >> 7 <= a[0] >> 7
        below_b = contains(b, a[3:]) and (a[3:] != b"" or b[3:] == b"") and a[0] >> 7 <= b[0] >> 7
        if not below_a and not below_b:
            return None
        narrow = b if below_a else a
    return narrow[:1] + struct.pack("<H", rights) + narrow[3:] if rights else None


# Channel


def chacha20(key: bytes, counter: int, nonce: bytes) -> bytes:
    state = list(struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce))
    work = state[:]

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            work[x] = (work[x] + work[y]) & 0xFFFFFFFF
            mixed = work[z] ^ work[x]
            work[z] = (mixed << bits | mixed >> (32 - bits)) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, work)))


def poly1305(key: bytes, data: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at : at + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    return ((total + int.from_bytes(key[16:], "little")) & ((1 << 128) - 1)).to_bytes(16, "little")


def crypt(key: bytes, nonce: bytes, data: bytes) -> bytes:
    stream = b"".join(chacha20(key, 1 + at, nonce) for at in range((len(data) + 63) // 64))
    return bytes(a ^ b for a, b in zip(data, stream))


def tag_of(key: bytes, nonce: bytes, aad: bytes, sealed: bytes) -> bytes:
    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 16)

    lengths = struct.pack("<QQ", len(aad), len(sealed))
    return poly1305(chacha20(key, 0, nonce)[:32], padded(aad) + padded(sealed) + lengths)


def hkdf(salt: bytes, ikm: bytes, info: bytes, length: int) -> bytes:
    key, made, block = mac(salt or bytes(32), ikm), b"", b""
    while len(made) < length:
        block = mac(key, block + info + bytes([len(made) // 32 + 1]))
        made += block
    return made[:length]


class Channel:
    """The keys of both sides, from both messages."""

    def __init__(self, case: dict[str, Any]) -> None:
        token = TOKENS[case["token"]]
        body, signature = bytes.fromhex(token["body"]), bytes.fromhex(token["signature"])
        start = b"\1" + struct.pack("<H", case["client_takes"]) + bytes.fromhex(case["client_nonce"]) + body
        self.m1 = b"MR/P" + struct.pack("<H", len(start)) + start
        m2 = struct.pack("<HBH", 35, 1, case["host_takes"]) + bytes.fromhex(case["host_nonce"])
        th = hashlib.sha256(self.m1 + m2).digest()
        made = hkdf(th, mac(signature, b"\2channel"), b"millrace channel 1", 120)
        self.m2 = m2 + mac(made[:32], th)[:16]
        self.keys = {"client": (made[32:64], made[96:108]), "host": (made[64:96], made[108:120])}
        self.takes = {"client": case["client_takes"], "host": case["host_takes"]}

    def nonce(self, side: str, counter: int) -> bytes:
        iv = self.keys[side][1]
        return iv[:4] + bytes(a ^ b for a, b in zip(iv[4:], struct.pack("<Q", counter)))

    def seal(self, side: str, counter: int, plain: bytes) -> bytes:
        key, nonce, length = self.keys[side][0], self.nonce(side, counter), struct.pack("<H", len(plain) + 16)
        sealed = crypt(key, nonce, plain)
        return length + sealed + tag_of(key, nonce, length, sealed)

    def open(self, receiver: str, data: bytes) -> bytes:
        """All records that a side receives from the beginning."""
        sender = "client" if receiver == "host" else "host"
        reader, plain, counter = Reader(data), b"", 0
        while reader.data:
            head = reader.take(2)
            length = int.from_bytes(head, "little")
            if not 16 <= length <= self.takes[receiver]:
                raise Refused
            record = reader.take(length)
            key, nonce = self.keys[sender][0], self.nonce(sender, counter)
            if tag_of(key, nonce, head, record[:-16]) != record[-16:]:
                raise Refused
            plain += crypt(key, nonce, record[:-16])
            counter += 1
        return plain


TOKENS: dict[str, dict[str, Any]] = {token["name"]: token for token in VECTORS["tokens"]}


def token_bytes(name: str) -> bytes:
    return bytes.fromhex(TOKENS[name]["body"] + TOKENS[name]["signature"])


def test_the_primitives_are_those_of_their_rfcs() -> None:
    for case in VECTORS["primitives"]:
        data = {name: bytes.fromhex(text) for name, text in case.items() if name not in ("name", "primitive")}
        if case["primitive"] == "hmac-sha-256":
            assert mac(data["key"], data["data"])[: len(data["mac"])] == data["mac"], case["name"]
        elif case["primitive"] == "hkdf-sha-256":
            assert hkdf(data["salt"], data["ikm"], data["info"], len(data["okm"])) == data["okm"], case["name"]
        else:
            assert crypt(data["key"], data["nonce"], data["plain"]) == data["sealed"]
            assert tag_of(data["key"], data["nonce"], data["aad"], data["sealed"]) == data["tag"]


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_made_as_it_says(name: str) -> None:
    token = TOKENS[name]
    [(how, made)] = token["made"].items()
    signature = bytes.fromhex(token["signature"])
    if how == "issue":
        head = b"\1" + bytes.fromhex(made["authority"]) + struct.pack("<H", made["generation"])
        body = head + b"\1" + encode(made["items"])
    elif how == "attenuate":
        parent = bytearray.fromhex(TOKENS[made["of"]]["body"])
        before, block = bytes.fromhex(TOKENS[made["of"]]["signature"]), encode(made["items"])
        count_at = 11
        if parent[0] == 129:
            count_at = 2
            for _ in range(parent[1]):
                count_at += 2 + int.from_bytes(parent[count_at : count_at + 2], "little")
        parent[count_at] += 1
        body = bytes(parent) + block
        assert signature == mac(before, b"\1" + block), "without the keys"
    elif how == "merge":
        parts = [bytes.fromhex(TOKENS[part]["body"]) for part in made]
        body = bytes([129, len(parts)]) + b"".join(struct.pack("<H", len(part)) + part for part in parts) + b"\0"
    else:
        body = squashed(made)
    assert body.hex() == token["body"]
    read = Body(body)
    assert read.sign() == signature
    text = "mr1_" + base64.urlsafe_b64encode(body + signature).decode().rstrip("=")
    assert text == token["text"]
    assert (read.principal(), read.buckets) == (token["principal"], token["buckets"])
    proof = mac(signature, b"\2proof")
    assert mac(proof, bytes.fromhex(token["exporter"])).hex() == token["exporter_proof"]
    assert mac(proof, b"unix" + bytes.fromhex(token["challenge"])).hex() == token["challenge_proof"]
    assert mac(signature, b"\2sigv4").hex() == token["sigv4_key"]


def squashed(name: str) -> bytes:
    """The body of one block for a chain; the order of grants and other alternatives is that of their bytes."""
    [part] = Body(bytes.fromhex(TOKENS[name]["body"])).parts
    blocks = [read_items(block[2:]) for block in part.blocks]

    def column(tag: int) -> list[list[bytes]]:
        columns = [[value for known, value in block if known == tag] for block in blocks]
        return [values for values in columns if values]

    made: list[Item] = []
    grants, *others = column(1)
    for other in others:
        grants = [both for a in grants for b in other if (both := intersect_grants(a, b))]
    made += [(1, grant) for grant in grants]
    for tag, pick in ((2, min), (3, max), (4, min)):
        if numbers := [int.from_bytes(value, "little") for values in column(tag) for value in values]:
            made.append((tag, struct.pack("<I", pick(numbers))))
    if masks := column(5):
        mask = 15
        for [value] in masks:
            mask &= value[0]
        made.append((5, bytes([mask])))
    for tag in (6, 7, 9):
        # The vectors have each of these in one block of a chain.
        assert len(column(tag)) <= 1
        made += [(tag, value) for values in column(tag) for value in values]
    made += [(16, value) for value in dict.fromkeys(value for values in column(16) for value in values)]
    made += [(tag, column(tag)[0][0]) for tag in (17, 18) if column(tag)]
    items = b"".join(bytes([tag, len(value)]) + value for tag, value in made)
    return part.head + b"\1" + struct.pack("<H", len(items)) + items


def test_what_cannot_be_squashed() -> None:
    for name in VECTORS["squash_refused"]:
        body = Body(bytes.fromhex(TOKENS[name]["body"]))
        tags = {tag for part in body.parts for block in body.items(part) for tag, _ in block}
        assert len(body.parts) > 1 or tags & {8, 10}, name


def test_what_is_malformed_is_refused() -> None:
    assert len(VECTORS["malformed"]) >= 90
    for case in VECTORS["malformed"]:
        with pytest.raises(Refused):
            Body(bytes.fromhex(case["body"]))
            pytest.fail(case["name"])


def test_what_is_forged_or_revoked_is_refused() -> None:
    for case in VECTORS["forged"]:
        token = bytes.fromhex(case["token"])
        Body(token[:-32])
        with pytest.raises(Refused):
            accept(token, {bytes.fromhex(text) for text in case["revoked"]})
            pytest.fail(case["name"])


def test_every_byte_that_is_flipped_is_noticed() -> None:
    for name in VECTORS["flipped"]:
        token = token_bytes(name)
        accept(token, set())
        for at in range(len(token)):
            changed = bytearray(token)
            changed[at] ^= 1
            with pytest.raises(Refused):
                accept(bytes(changed), set())
                pytest.fail(f"{name}, byte {at}")


def test_evaluations() -> None:
    assert len(VECTORS["evaluations"]) >= 200
    for case in VECTORS["evaluations"]:
        body = Body(bytes.fromhex(TOKENS[case["token"]]["body"]))
        assert permits(body, case) == case["permitted"], case


def test_channels() -> None:
    for case in VECTORS["channels"]:
        channel = Channel(case)
        assert (channel.m1.hex(), channel.m2.hex()) == (case["m1"], case["m2"])
        for side, receiver in (("client", "host"), ("host", "client")):
            plains = [bytes.fromhex(record["plain"]) for record in case[f"from_{side}"]]
            sent = b"".join(bytes.fromhex(record["sent"]) for record in case[f"from_{side}"])
            limit = channel.takes[receiver] - 16
            chunks = [plain[at : at + limit] for plain in plains for at in range(0, max(len(plain), 1), limit)]
            assert b"".join(channel.seal(side, at, chunk) for at, chunk in enumerate(chunks)) == sent
            assert channel.open(receiver, sent) == b"".join(plains)
        for broken in case["broken"]:
            with pytest.raises(Refused):
                channel.open(broken["to"], bytes.fromhex(broken["bytes"]))
                pytest.fail(f"{case['token']}: {broken['name']}")
