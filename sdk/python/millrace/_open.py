"""Opening a namespace, wherever it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Optional, Union

from millrace._namespace import LocalNamespace, Namespace, RemoteNamespace
from millrace._records import _native

PathOrAddress = Union[str, "os.PathLike[str]"]

_APPLICATION = "millrace.toml"
_NAMESPACE_DIR = ".millrace"


def open(place: Optional[PathOrAddress] = None, *, ca: Optional[PathOrAddress] = None) -> Namespace:
    """Opens a namespace: by its directory, by the directory of its application, or by an address of a host.

        millrace.open("farm/.millrace")              the namespace's files on this machine; no host is needed
        millrace.open("farm")                        the namespace that farm/millrace.toml names, or farm/.millrace
        millrace.open("mr://edge:7070/farm")         through a host
        millrace.open("unix:farm/.millrace/socket")  through a host on this machine
        millrace.open()                              the namespace of MILLRACE_NAMESPACE, else of ./millrace.toml, else ./.millrace

    `ca` names the certificate authorities with which to verify a host whose key is not stored: a PEM file, or "system" for those of
    this machine; by default MILLRACE_CA.
    """
    if place is None:
        place = os.environ.get("MILLRACE_NAMESPACE") or None
    if place is None:
        return LocalNamespace(_found())
    text = os.fspath(place)
    _check_importing(text)
    if text.startswith(("mr://", "unix:")):
        return RemoteNamespace(text, None if ca is None else os.fspath(ca))
    return LocalNamespace(_directory(text))


def create(
    path: PathOrAddress,
    *,
    durability: str = "disk",
    segment_bytes: Optional[int] = None,
    retain_bytes: Optional[int] = None,
    retain_age: Optional[float] = None,
) -> Namespace:
    """Creates a namespace in a new or empty directory, and opens it.

    `durability` is the default of appends, `segment_bytes` the size of a journal segment (a power of two from 1 MiB);
    both cannot be changed later. `retain_bytes` and `retain_age` (seconds) are how much of the journal is kept even if
    nothing needs it; `millrace namespace set` changes them. On a small disk, sizes that are not given fit the disk.
    """
    text = os.fspath(path)
    _native.LocalNamespace.make(text, durability, segment_bytes, retain_bytes, retain_age)
    return LocalNamespace(text)


def _found() -> str:
    """The namespace here. Nobody named it, so it must not be one that another user put there."""
    _native.check_trusted(_APPLICATION)
    found = _directory(".")
    # Another directory is the choice of the user who wrote the application file.
    if found == ".":
        _native.check_trusted("manifest")
    elif Path(found) == Path(_NAMESPACE_DIR):
        _native.check_trusted(found)
    return found


def _check_importing(place: str) -> None:
    """Raises while the module of a function is imported, before anything is said of the place."""
    importing = getattr(sys.modules.get("millrace._worker"), "importing", None)
    if importing is not None:
        raise _native.error("MR3142", f"the namespace '{place}' was to be opened while module '{importing}' was imported")


def _directory(place: str) -> str:
    """The namespace's directory: the place itself, or the one of the application there."""
    path = Path(place)
    if (path / "manifest").exists():
        return place
    named = _native.namespace_of(str(path / _APPLICATION))
    if named is not None:
        return str(named)
    inner = path / _NAMESPACE_DIR
    return str(inner) if (inner / "manifest").exists() else place
