"""Labels of hosts: those that an executor's tasks need, and those that a host has."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Optional, Union

from millrace._namespace import RemoteNamespace
from millrace._records import _native
from millrace._worker import Error
from millrace.executor import _PAUSE_S, Executor

#: What an executor's `label` may be: KEY=VALUE, or several of them.
Label = Union[str, Iterable[str], None]
Labels = dict[str, str]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_NOT_IN_CLUSTER = "MR7209"
#: For how long a host that has just started may not know yet that it is one of the cluster's.
_STARTS_S = 5.0


def parse(label: Label) -> Labels:
    """Parses the required labels."""
    needed: Labels = {}
    for one in [label] if isinstance(label, str) else label or ():
        key, _, value = one.partition("=") if isinstance(one, str) else ("", "", "")
        if not _NAME.fullmatch(key) or not _NAME.fullmatch(value):
            raise _native.error("MR7130", f"label={one!r}: a label has the form KEY=VALUE, such as 'gpu=a100'")
        if needed.setdefault(key, value) != value:
            raise _native.error("MR7130", f"a host has one label {key!r}: it is {needed[key]!r} or {value!r}")
    return needed


def of_host(remote: RemoteNamespace) -> Labels:
    """The labels that a host was started with."""
    until = time.monotonic() + _STARTS_S
    while True:
        try:
            hosts = json.loads(remote.show("cluster"))["hosts"]
        except Error as error:
            if error.code == _NOT_IN_CLUSTER:
                return {}
            raise
        own: list[Labels] = [host.get("labels", {}) for host in hosts if host["here"]]
        if own or time.monotonic() > until:
            return own[0] if own else {}
        time.sleep(_PAUSE_S)


def shown(labels: Labels) -> str:
    """As on the command line."""
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "no labels"


def missing(needed: Labels, hosts: Iterable[tuple[str, Optional[Labels]]]) -> Error:
    """The error that no host has all of these; each host's labels are None if they are not known."""
    seen = "; ".join(f"{address}: {'not reached' if labels is None else shown(labels)}" for address, labels in hosts)
    return _native.error("MR7126", f"{shown(needed)}; {seen}")


class Labelled(Executor):
    """An executor whose tasks need additional labels; everything else is that of the original executor."""

    _is_spread = True

    def __init__(self, of: Any, needs: Labels) -> None:
        self._of, self._needs = of, needs

    def __getattr__(self, name: str) -> Any:
        if name == "_of":
            raise AttributeError(name)
        return getattr(self._of, name)

    def _begin(self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]) -> Sequence[Future[Any]]:
        submitted: Sequence[Future[Any]] = self._of._begin(calls, self._needs)
        return submitted

    def on(self, label: Label) -> Executor:
        """This executor, for tasks that need these labels as well."""
        narrower: Executor = self._of._narrowed(self._needs, parse(label))
        return narrower

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: the tasks belong to the executor, which continues."""
