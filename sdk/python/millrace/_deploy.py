"""Deploying a Python function from the program that defines it."""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Optional

from millrace import _views
from millrace._records import _native
from millrace._views import Deployed
from millrace._worker import Settings

if TYPE_CHECKING:
    from millrace._namespace import Namespace
    from millrace._worker import Handler

#: The prefix of topics in lists of logs.
_TOPIC = "topic:"


def deploy(namespace: Namespace, handler: Handler, source: Optional[str], settings: dict[str, Any]) -> Deployed:
    """Deploys `handler` with the settings of its decorator; `settings` take precedence."""
    if not isinstance(namespace, _native.LocalNamespace):
        raise _native.error("MR6107", f"a function can be deployed only with the namespace's files; '{namespace.address}' is an address")
    decorated = getattr(handler, "__millrace__", None)
    spec: dict[str, Any] = {}
    if isinstance(decorated, Settings):
        spec = {"name": decorated.name, "on": list(decorated.on), **decorated.options}
    if settings.get("concurrency", 1) > 1:
        spec["ordered"] = False
    spec.update({key: value for key, value in settings.items() if value is not None})
    if isinstance(spec.get("on"), str):
        spec["on"] = [spec["on"]]
    named = list(spec.get("on") or ())
    # All of them have to be there before anything is deployed.
    topics = [namespace.topic(name.removeprefix(_TOPIC)) for name in named if name.startswith(_TOPIC)]
    spec["on"] = [name for name in named if not name.startswith(_TOPIC)]
    module, code = _module_and_code(handler, source)
    spec["handler"] = f"{module}:{handler.__name__}"
    spec["name"] = spec.get("name") or handler.__name__
    # The interpreter that runs this program has what the function imports.
    spec["python"] = spec.get("python") or sys.executable or "python3"
    deployed = _views.deployed(namespace.deploy_code(json.dumps(spec), code))
    for topic in topics:
        topic.subscribe(deployed.name)
    return deployed


def _module_and_code(handler: Handler, source: Optional[str]) -> tuple[str, str]:
    """The module that a worker imports, and the file or directory it is imported from."""
    if not inspect.isfunction(handler) or handler.__name__ == "<lambda>":
        raise _native.error("MR6103", f"{handler!r} is not a function that is defined with `def`")
    if handler.__qualname__ != handler.__name__:
        raise _native.error("MR6103", f"'{handler.__qualname__}' is defined inside a class or another function")
    file = inspect.getsourcefile(handler)
    if file is None or not os.path.isfile(file):
        raise _native.error("MR6103", f"'{handler.__name__}' is not defined in a file: {file or 'it was typed in'}")
    file = os.path.abspath(file)
    if source is None:
        return os.path.splitext(os.path.basename(file))[0], file
    below = os.path.relpath(file, os.path.abspath(source))
    if below.startswith(os.pardir):
        raise _native.error("MR6103", f"'{handler.__name__}' is defined in {file}, which is not below {source}")
    return os.path.splitext(below)[0].replace(os.sep, "."), os.path.abspath(source)
