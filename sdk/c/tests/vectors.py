"""Turns spec/vectors into tables of C: `vectors.py wire.json messages.json > vectors.inc`, `vectors.py capability.json > channel.inc`."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]


class Field(NamedTuple):
    """A key of a message, as in spec/messages.toml."""

    key: str
    kind: str
    optional: bool


def fields_of(table: dict[str, Any]) -> dict[str, Field]:
    found = {}
    for field in table["fields"]:
        key, kind = field.split(": ")
        found[key.rstrip("?~=")] = Field(key.rstrip("?~="), kind, key.endswith("?"))
    return found


SPEC = tomllib.loads((ROOT / "spec/messages.toml").read_text())
SECTIONS = {section["name"]: section for section in SPEC["section"]}
MESSAGES = {
    message["type"]: (name, fields_of(message))
    for name, message in SPEC["message"].items()
    if "c" in message.get("in", SECTIONS[message["section"]]["in"])
}
MAPS = {name: fields_of(table) for name, table in (SPEC["map"] | SPEC["message"]).items()}


def quoted(data: bytes) -> str:
    # Octal has at most three digits, so that what follows cannot be taken for a part of it.
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + '"'


def bytes_of(data: bytes) -> str:
    # A string of C99 need not be longer; zeros at the end of an array go without saying.
    if len(data) > 4000:
        return f"{{(const char[{len(data)}]){{{', '.join(map(str, data.rstrip(bytes(1))))}}}, {len(data)}}}"
    return f"{{{quoted(data)}, {len(data)}}}"


def id_of(value: str) -> str:
    return "{{" + ", ".join(str(byte) for byte in bytes.fromhex(value)) + "}}"


def member(field: Field, value: Any) -> str:
    """A member of a message's struct and its value."""
    name = {"namespace": "namespace_name" if field.kind == "text" else "namespace_id", "void": "is_void"}.get(field.key, field.key)
    if field.kind.startswith("["):
        struct = field.kind[1:-1]
        elements = ", ".join(fields(MAPS[struct], element) for element in value)
        items = f"(const mrw_{struct}[]){{{elements}}}" if value else "NULL"
        made = f"{{{len(value)}, {items}, {{NULL, 0}}}}"
    elif field.kind in MAPS:
        made = "{true, " + fields(MAPS[field.kind], value)[1:]
    elif field.kind.startswith("u") and field.optional:
        made = f"{{true, {value}u}}"
    elif field.kind == "durability":
        made = f"MRW_{value.upper()}"
    elif field.kind == "flag":
        made = str(value).lower()
    elif field.kind == "id":
        made = id_of(value["hex"])
    elif field.kind in ("text", "bytes"):
        made = bytes_of(value.encode() if field.kind == "text" else bytes.fromhex(value["hex"]))
    else:
        made = f"{value}u"
    return f".{name} = {made}"


def fields(of: dict[str, Field], message: dict[str, Any]) -> str:
    return "{" + ", ".join(member(of[key], value) for key, value in message.items()) + "}"


def frame(vector: dict[str, Any]) -> str:
    name, of = MESSAGES[vector["type"]]
    cause = ", " + id_of(vector["cause"]["hex"]) if vector["cause"] else ""
    heading = f"{{{vector['request']}u, {vector['hlc']}u{cause}}}"
    message = fields(of, vector["message"]) if vector["message"] else "{0}"
    # A message without keys has no struct of its own.
    struct = name if of else "empty"
    return (
        f'{{"{vector["name"]}", {bytes_of(bytes.fromhex(vector["hex"]))}, {vector["type"]}, {heading}, '
        f"&(const mrw_{struct}){message}}},"
    )


def hexed(digits: str) -> str:
    return bytes_of(bytes.fromhex(digits))


def channel(at: int, of: dict) -> str:
    """A handshake, and what is sent over it."""
    for name, side in (("outs", "from_client"), ("ins", "from_host")):
        records = "".join(f"    {{{hexed(one['plain'])}, {hexed(one['sent'])}}},\n" for one in of[side])
        print(f"static const record {name}_{at}[] = {{\n{records}}};")
    wrong = "".join(
        f'    {{"{one["name"]}", {int(one["to"] == "host")}, {hexed(one["bytes"])}}},\n' for one in of["broken"]
    )
    print(f"static const broken wrongs_{at}[] = {{\n{wrong}}};")
    return (
        f'{{"{of["token"]}", {hexed(of["client_nonce"])}, {hexed(of["m1"])}, {hexed(of["m2"])}, {of["client_takes"]}, '
        f"outs_{at}, ins_{at}, wrongs_{at}, {len(of['from_client'])}, {len(of['from_host'])}, {len(of['broken'])}}},"
    )


def capabilities(vectors: dict) -> None:
    def table(of: str, name: str, rows: list[str]) -> None:
        print(f"static const {of} {name}[] = {{")
        print("\n".join(rows) + "\n};")

    primitives = vectors["primitives"]
    table("mac", "macs", [
        f'{{"{one["name"]}", {hexed(one["key"])}, {hexed(one["data"])}, {hexed(one["mac"])}}},'
        for one in primitives if one["primitive"] == "hmac-sha-256"
    ])  # fmt: skip
    table("box", "boxes", [
        f'{{"{one["name"]}", ' + ", ".join(hexed(one[key]) for key in ("key", "nonce", "aad", "plain", "sealed", "tag")) + "},"
        for one in primitives if one["primitive"] == "chacha20-poly1305"
    ])  # fmt: skip
    table("token", "tokens", [
        f'{{"{one["name"]}", "{one["text"]}", {hexed(one["body"])}, {hexed(one["signature"])}}},' for one in vectors["tokens"]
    ])  # fmt: skip
    table("body", "malformed", [f'{{"{one["name"]}", {hexed(one["body"])}}},' for one in vectors["malformed"]])
    table("shake", "shakes", [channel(at, of) for at, of in enumerate(vectors["channels"])])


def main() -> None:
    vectors: dict[str, Any] = {}
    for name in sys.argv[1:]:
        for key, value in json.loads(Path(name).read_text(encoding="utf-8")).items():
            vectors[key] = vectors[key] + value if isinstance(vectors.get(key), list) else value
    if "channels" in vectors:
        capabilities(vectors)
        return
    for table in ("frames", "readable"):
        print(f"static const vector {table}[] = {{")
        for vector in vectors[table]:
            # The client in C has only some of the messages, and no slots.
            if vector["type"] in MESSAGES and "slot" not in vector:
                print(frame(vector))
        print("};")
    print("static const refusal refused[] = {")
    for vector in vectors["refused"]:
        code = -int(vector["code"][2:])
        print(f'{{"{vector["name"]}", {bytes_of(bytes.fromhex(vector["hex"]))}, {code}}},')
    print("};")


main()
