"""Turns spec/vectors into tables of C: `vectors.py wire.json > vectors.inc`, `vectors.py capability.json > channel.inc`."""

import json
import sys

STRUCTS = {
    1: "hello", 2: "welcome", 3: "failure", 4: "empty", 5: "empty",
    16: "append", 17: "appended", 18: "append_many", 19: "appended_many", 20: "get", 21: "record", 22: "range",
    23: "records", 24: "latest", 25: "seqno", 26: "tail", 27: "credit", 28: "empty", 29: "empty", 30: "create_log",
    31: "empty", 32: "remove_log", 140: "set_log", 141: "cancel_run", 34: "show", 35: "document", 48: "link", 49: "linked", 50: "deliver", 51: "delivered",
}
ELEMENTS = {(18, "records"): "new_record", (19, "records"): "appended", (23, "records"): "record",
            (48, "path"): "step", (50, "items"): "item"}


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


def member(kind: int, key: str, value: object) -> str:
    """A member of a message's struct and its value."""
    if isinstance(value, list):
        struct = ELEMENTS[kind, key]
        elements = ", ".join(fields(kind, element) for element in value)
        items = f"(const mrw_{struct}[]){{{elements}}}" if value else "NULL"
        return f".{key} = {{{len(value)}, {items}, {{NULL, 0}}}}"
    if key in ("refused", "life"):
        return f".{key} = {{true, {fields(kind, value)[1:]}"
    if key == "retry_after_ms":
        return f".retry = {{true, {value}u}}"
    if key == "durability":
        return f".durability = MRW_{str(value).upper()}"
    if key == "namespace":
        return f".name = {bytes_of(value.encode())}" if isinstance(value, str) else f".namespace_id = {value}u"
    if isinstance(value, bool):
        return f".{'is_void' if key == 'void' else key} = {str(value).lower()}"
    if isinstance(value, int):
        return f".{key} = {value}u"
    if isinstance(value, str):
        return f".{key} = {bytes_of(value.encode())}"
    data = value["hex"]
    return f".{key} = {id_of(data)}" if key in ("id", "cause", "run") else f".{key} = {bytes_of(bytes.fromhex(data))}"


def fields(kind: int, message: dict) -> str:
    return "{" + ", ".join(member(kind, key, value) for key, value in message.items()) + "}"


def frame(vector: dict) -> str:
    struct, kind = STRUCTS[vector["type"]], vector["type"]
    cause = ", " + id_of(vector["cause"]["hex"]) if vector["cause"] else ""
    heading = f"{{{vector['request']}u, {vector['hlc']}u{cause}}}"
    message = fields(kind, vector["message"]) if vector["message"] else "{0}"
    return (f'{{"{vector["name"]}", {bytes_of(bytes.fromhex(vector["hex"]))}, {kind}, {heading}, '
            f"&(const mrw_{struct}){message}}},")


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
    with open(sys.argv[1], encoding="utf-8") as file:
        vectors = json.load(file)
    if "channels" in vectors:
        capabilities(vectors)
        return
    for table in ("frames", "readable"):
        print(f"static const vector {table}[] = {{")
        for vector in vectors[table]:
            # The client in C shows no capabilities and repairs nothing: it has none of these messages.
            shows = vector["type"] in (6, 7, 44, 45, 84) or "capabilities" in vector["message"] or "slot" in vector
            if not shows:
                print(frame(vector))
        print("};")
    print("static const refusal refused[] = {")
    for vector in vectors["refused"]:
        code = -int(vector["code"][2:])
        print(f'{{"{vector["name"]}", {bytes_of(bytes.fromhex(vector["hex"]))}, {code}}},')
    print("};")


main()
