"""Encodes the values of shared objects: as MessagePack, and as a pickle where MessagePack has no form.

Numbers of 64 bits, booleans, text, bytes, lists, dicts and tuples of these travel as what they are, so that every language and
the host can read them. The host never opens a pickle: only programs and tasks of the same user do.
"""

from __future__ import annotations

import pickle
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Optional

#: Extensions of MessagePack: something pickled, and the elements of a tuple.
_PICKLE, _TUPLE = 1, 2
#: The longest text or bytes: as long as the longest frame that a host takes.
VALUE_MAX = 16 << 20
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

_dumps: Optional[Callable[[object], bytes]] = None


def pickled(value: object) -> bytes:
    """The pickle of a value, which workers can open if cloudpickle is installed: they do not have the program's main module."""
    if _dumps is None:
        try:
            from cloudpickle import dumps
        except ImportError:
            dumps = pickle.dumps
        pickle_with(dumps)
    assert _dumps is not None
    return bytes(_dumps(value))


def pickle_with(dumps: Callable[[object], bytes]) -> None:
    """Sets the function that pickles values for which MessagePack has no form."""
    global _dumps
    _dumps = dumps


def encode(value: object) -> bytes:
    """The bytes of a value."""
    out: list[bytes] = []
    _encode(value, out.append)
    return b"".join(out)


class TooLong(ValueError):
    """A value is longer than the limit of a call."""


def array(values: Sequence[object]) -> bytes:
    """The bytes of an array of values."""
    return encode(list(values))


def arguments(method: str, key: str, values: Sequence[object]) -> bytes:
    """The arguments of a call."""
    try:
        return array(values)
    except TooLong as error:
        from millrace.objects._raised import known

        raise known("MR7108", f"an argument of {method} of {key!r} has {error}") from None
    except Exception as error:
        # An error with a code says itself what is wrong, such as a reference to an object that cannot be created.
        if hasattr(error, "add_note") and not hasattr(error, "code"):
            error.add_note(f"an argument of {method} of {key!r} cannot be pickled, or something that it refers to")
        raise


#: Types whose methods take a key first; `update` takes many, and each how many elements begins with a key.
KEYED = {"Dict": 2, "SortedDict": 2, "Counter": 2, "Set": 1}


#: By type: a method that changes nothing and needs no arguments; it creates the object.
TOUCH = {
    **dict.fromkeys(("AtomicInt", "AtomicLong", "AtomicBool", "AtomicBytes"), "get"),
    **dict.fromkeys(("Counter", "Dict", "SortedDict", "Set", "List", "Log", "Blob"), "len"),
    **dict.fromkeys(("Lock", "Condition"), "locked"),
    "Queue": "qsize",
    "Matrix": "shape",
    "Semaphore": "value",
    "Event": "is_set",
    "Barrier": "n_waiting",
    "CountDownLatch": "get_count",
    "Future": "done",
}


def check_keys(method: str, first: Any, each: int) -> None:
    """Refuses keys that the host could not find again: it compares bytes, and equal objects may have others once they are pickled."""
    for key in first[::each] if method.endswith("update") else (first,):
        _check_key(key)


def _check_key(key: Any) -> None:
    if type(key) is tuple:
        for element in key:
            _check_key(element)
    elif key is not None and type(key) not in (bool, int, float, str, bytes):
        kind = type(key).__name__
        raise TypeError(f"keys of shared objects are numbers, text, bytes, booleans, None and tuples of these, not {kind!r}")


def _head(put: Callable[[bytes], None], count: int, fixed: int, most: int, words: Sequence[int]) -> None:
    """A marker and a length. `words` are the markers for lengths of 1, 2 and 4 bytes; 0 where there is none."""
    if count < most:
        put(bytes((fixed | count,)))
    elif words[0] and count < 1 << 8:
        put(struct.pack(">BB", words[0], count))
    elif count < 1 << 16:
        put(struct.pack(">BH", words[1], count))
    elif count < 1 << 32:
        put(struct.pack(">BI", words[2], count))
    else:
        raise OverflowError(f"a value of {count} elements or bytes")


def _encode(value: Any, put: Callable[[bytes], None]) -> None:
    kind = type(value)
    if value is None:
        put(b"\xc0")
    elif kind is bool:
        put(b"\xc3" if value else b"\xc2")
    elif kind is int and _INT_MIN <= value <= _INT_MAX:
        put(_int(value))
    elif kind is float:
        put(struct.pack(">Bd", 0xCB, value))
    elif kind in (bytes, str) and len(value) > VALUE_MAX:
        raise TooLong(f"{len(value)} bytes or characters; the limit is {VALUE_MAX}")
    elif kind is str:
        text = value.encode("utf-8", "surrogatepass")
        _head(put, len(text), 0xA0, 32, (0xD9, 0xDA, 0xDB))
        put(text)
    elif kind is bytes:
        _head(put, len(value), 0, 0, (0xC4, 0xC5, 0xC6))
        put(value)
    elif kind is list:
        _head(put, len(value), 0x90, 16, (0, 0xDC, 0xDD))
        for element in value:
            _encode(element, put)
    elif kind is dict:
        _head(put, len(value), 0x80, 16, (0, 0xDE, 0xDF))
        for key, element in value.items():
            _encode(key, put)
            _encode(element, put)
    elif kind is tuple:
        _extension(put, _TUPLE, encode(list(value)))
    else:
        _extension(put, _PICKLE, pickled(value))


def _extension(put: Callable[[bytes], None], kind: int, data: bytes) -> None:
    _head(put, len(data), 0, 0, (0xC7, 0xC8, 0xC9))
    put(bytes((kind,)))
    put(data)


def _int(value: int) -> bytes:
    """The shortest form: equal numbers are equal keys."""
    if -32 <= value < 128:
        return struct.pack(">b" if value < 0 else ">B", value)
    for bound, marker, code in ((8, 0xCC, "B"), (16, 0xCD, "H"), (32, 0xCE, "I"), (64, 0xCF, "Q")):
        if 0 <= value < 1 << bound:
            return struct.pack(f">B{code}", marker, value)
    for bound, marker, code in ((8, 0xD0, "b"), (16, 0xD1, "h"), (32, 0xD2, "i")):
        if -(1 << bound - 1) <= value < 0:
            return struct.pack(f">B{code}", marker, value)
    return struct.pack(">Bq", 0xD3, value)


def decode(data: bytes) -> Any:
    """The value of these bytes."""
    value, end = _decode(data, 0)
    if end != len(data):
        raise ValueError("bytes follow the value")
    return value


_FIXED = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {
    **dict.fromkeys((0xC4, 0xC7, 0xD9), ">B"),
    **dict.fromkeys((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), ">H"),
    **dict.fromkeys((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), ">I"),
}


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    marker = data[at]
    at += 1
    if marker < 0x80:
        return marker, at
    if marker >= 0xE0:
        return marker - 256, at
    if marker < 0x90:
        return _map(data, at, marker & 15)
    if marker < 0xA0:
        return _list(data, at, marker & 15)
    if marker < 0xC0:
        return _text(data, at, marker & 31)
    if marker in (0xC0, 0xC2, 0xC3):
        return (None if marker == 0xC0 else marker == 0xC3), at
    if marker in _FIXED:
        form = _FIXED[marker]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if 0xD4 <= marker <= 0xD8:
        length = 1 << marker - 0xD4
        return _extended(data, at, length)
    if marker not in _LENGTHS:
        raise ValueError(f"no value begins with {marker:#x}")
    form = _LENGTHS[marker]
    length = struct.unpack_from(form, data, at)[0]
    at += struct.calcsize(form)
    if marker <= 0xC6:
        return data[at : at + length], at + length
    if marker <= 0xC9:
        return _extended(data, at, length)
    if marker <= 0xDB:
        return _text(data, at, length)
    return _list(data, at, length) if marker <= 0xDD else _map(data, at, length)


def _text(data: bytes, at: int, length: int) -> tuple[str, int]:
    return data[at : at + length].decode("utf-8", "surrogatepass"), at + length


def _list(data: bytes, at: int, length: int) -> tuple[list[Any], int]:
    found = []
    for _ in range(length):
        value, at = _decode(data, at)
        found.append(value)
    return found, at


def _map(data: bytes, at: int, length: int) -> tuple[dict[Any, Any], int]:
    found = {}
    for _ in range(length):
        key, at = _decode(data, at)
        found[key], at = _decode(data, at)
    return found, at


def _extended(data: bytes, at: int, length: int) -> tuple[Any, int]:
    kind, body = data[at], data[at + 1 : at + 1 + length]
    at += 1 + length
    if kind == _TUPLE:
        return tuple(decode(body)), at
    if kind == _PICKLE:
        return pickle.loads(body), at
    raise ValueError(f"extension {kind} is not known")
