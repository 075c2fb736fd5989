"""What is reported of a function's exception, and of a value that it returned; and what JSON has for scalars of numpy and pandas."""

from __future__ import annotations

import errno
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_MESSAGE_CHARACTERS_MAX = 6000
#: The host keeps no longer ones.
_RESULT_BYTES_MAX = 1 + (1 << 20)
#: What to do with values that JSON does not have, by package and class.
_HINTS = {
    ("numpy", "ndarray"): "; write `value.tolist()`",
    ("pandas", "Series"): "; write `value.tolist()`, or `append_many(value)` for a record of each value",
    ("pandas", "DataFrame"): "; write `append_many(value)` for a record of each row, or keep it whole with the codec `Arrow()`",
}
#: The files of the worker, whose frames say nothing to the author of a function.
_OWN = (__file__, __file__.replace("_errors/_explain", "_worker"))


def explain(error: BaseException) -> str:
    """The exception and its traceback, without frames of this package."""
    try:
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        if isinstance(error, SystemExit):
            summary = f"the function called sys.exit({error.code!r})"
        if _is_refused(error):
            summary = f"{summary[:800]} (the sandbox does not permit it; connections need `network = true` in the function's settings)"
        where = traceback.TracebackException(type(error), error, error.__traceback__)
        frames = [f for f in where.stack if f.filename not in _OWN and not f.filename.startswith("<frozen importlib")]
        where.stack = traceback.StackSummary.from_list(frames)
        text = "".join(where.format())
        if len(text) > _MESSAGE_CHARACTERS_MAX:
            half = _MESSAGE_CHARACTERS_MAX // 2
            text = f"{text[:half]}\n...\n{text[-half:]}"
        return f"{summary[:1000]}\n{text}"
    except BaseException:  # A hostile __str__, or no memory left to format with.
        return type(error).__name__


def plain(value: Any) -> Any:
    """What JSON has for a scalar of numpy or pandas, neither of which is needed for that; anything else is refused, as by `json`."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == "pandas" and kind.__name__ in ("NAType", "NaTType"):
        return None
    if package == "pandas" and kind.__name__ == "Timestamp":
        return value.isoformat()
    if package == "numpy" and getattr(value, "shape", None) == () and kind.__name__ != "ndarray":
        found = value.item()
        if isinstance(found, (bool, int, float, str)):
            return found
    if kind.__module__ == "datetime" and kind.__name__ in ("datetime", "date", "time"):
        return value.isoformat()
    raise TypeError(f"Object of type {kind.__name__} is not JSON serializable{_HINTS.get((package, kind.__name__), '')}")


def result_of(returned: object, output: Any) -> bytes:
    """What a function returned, as a DONE has it: a byte that says what it is, and its bytes."""
    try:
        if isinstance(returned, str):
            result = b"\0" + returned.encode()
        elif isinstance(returned, (bytes, bytearray, memoryview)):
            result = b"\1" + bytes(returned)
        else:
            import json

            result = b"\2" + json.dumps(returned, default=plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if len(result) <= _RESULT_BYTES_MAX:
            return result
        why = f"it has {len(result) - 1} bytes, and a result at most {_RESULT_BYTES_MAX - 1}"
    except Exception as error:
        why = f"{error}"[:200]
    text = f"the function returned a value ({type(returned).__name__}) that cannot be a result: {why}"
    try:
        output.write(f"[{text}]\n")
    except ValueError:
        pass  # The function closed its output.
    return b"\3" + text.encode(errors="backslashreplace")


def _is_refused(error: Optional[BaseException]) -> bool:
    """Whether the sandbox refused a system call. Libraries raise errors of their own for it."""
    for _ in range(16):
        reason = getattr(error, "reason", None)
        for given in (error, reason):
            if isinstance(given, OSError) and given.errno == errno.ENOSYS:
                return True
        if error is None:
            break
        error = error.__cause__ or error.__context__
    return False
