"""Deploying a Python function from the program that defines it."""

from __future__ import annotations

import __future__

import ast
import builtins
import dis
import inspect
import json
import os
import re
import sys
import tempfile
import textwrap
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Optional

from millrace import _views
from millrace._records import _native
from millrace._views import Deployed
from millrace._worker import Error, Settings
from millrace._worker import function as _settings_of

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
    # The interpreter that runs this program has what the function imports.
    spec["python"] = spec.get("python") or sys.executable or "python3"

    def deployed_as(module: str, code: str) -> Deployed:
        spec["handler"] = f"{module}:{handler.__name__}"
        return _views.deployed(namespace.deploy_code(json.dumps(spec), code))

    with tempfile.TemporaryDirectory(prefix="millrace-") as place:
        module, code = _module_and_code(handler, source, place)
        spec["name"] = spec.get("name") or handler.__name__
        try:
            deployed = deployed_as(module, code)
        except Error as refused:
            is_written = code.startswith(place)
            if is_written:
                _check_beside(handler, refused)
            is_script = handler.__module__ == "__main__" and source is None and not is_written
            if refused.code != "MR3142" or not is_script:
                raise
            # A script that does all its work when it is imported. What its function needs may do without the rest.
            try:
                alone = _written(handler, place)
            except Error as why:
                raise refused from why
            deployed = deployed_as(*alone)
    for topic in topics:
        topic.subscribe(deployed.name)
    return deployed


def _module_and_code(handler: Handler, source: Optional[str], place: str) -> tuple[str, str]:
    """The module that a worker imports, and the file or directory it is imported from."""
    if not inspect.isfunction(handler) or handler.__name__ == "<lambda>":
        raise _invalid(f"{handler!r} is not a function that is defined with `def`")
    if handler.__qualname__ != handler.__name__:
        raise _invalid(f"'{handler.__qualname__}' is defined inside a class or another function")
    file = inspect.getsourcefile(handler)
    if file is None or _is_typed_in(handler, file):
        if source is not None:
            raise _invalid(f"'{handler.__name__}' is not defined in a file below {source}: {file or 'it was typed in'}")
        return _written(handler, place)
    file = os.path.abspath(file)
    if source is None:
        return os.path.splitext(os.path.basename(file))[0], file
    below = os.path.relpath(file, os.path.abspath(source))
    if below.startswith(os.pardir):
        raise _invalid(f"'{handler.__name__}' is defined in {file}, which is not below {source}")
    return os.path.splitext(below)[0].replace(os.sep, "."), os.path.abspath(source)


def _check_beside(handler: Handler, refused: Error) -> None:
    """Says what to do if a function of a cell imports a module that lies beside the notebook."""
    missing = re.search(r"No module named '([^'.]+)", str(refused))
    file = getattr(sys.modules.get(missing[1]), "__file__", None) if missing and refused.code == "MR3115" else None
    if missing is None or file is None:
        return
    place, name = os.path.split(os.path.abspath(file))
    if name == "__init__.py":
        place = os.path.dirname(place)
    raise _invalid(
        f"'{handler.__name__}' imports '{missing[1]}' from {place}, where a worker does not look; define the function in a file there, import "
        f"it, and deploy it with source={place!r}"
    ) from refused


def _written(handler: Handler, place: str) -> tuple[str, str]:
    """A module with nothing but the function and what it uses."""
    module = f"cell_{handler.__name__}"
    file = os.path.join(place, f"{module}.py")
    with open(file, "w", encoding="utf-8") as written:
        written.write(_Cells(handler).text())
    return module, file


def _invalid(detail: str) -> Exception:
    return _native.error("MR6103", detail)


def _is_typed_in(handler: FunctionType, file: str) -> bool:
    """Whether the function comes from a cell of a notebook, was typed in, or is in a file that Python imports under no name."""
    if not os.path.isfile(file) or not file.endswith(".py"):
        return True
    # While its debugger is on, a notebook writes each cell to a file. To import it would run the cell.
    main = handler.__globals__.get("__file__")
    return handler.__module__ == "__main__" and (main is None or os.path.abspath(main) != os.path.abspath(file))


class _Cells:
    """The module of a function that no file defines: the text of the function and of those that it calls, and the imports that they need.

    A worker starts without the variables of the notebook, so a function that uses one is refused. Nothing is pickled: the code of a function
    stays text that people can read and correct.
    """

    def __init__(self, handler: Any) -> None:
        self._name = handler.__name__
        self._imports: set[str] = set()
        # By name, those that are called before those that call them.
        self._texts: dict[str, str] = {}
        self._begun: dict[str, FunctionType] = {}
        self._include(handler)

    def text(self) -> str:
        head = f'"""`{self._name}`, as a notebook defined it when it was deployed."""\n\nfrom __future__ import annotations\n'
        return "\n\n".join([head + "\n" + "".join(f"{line}\n" for line in sorted(self._imports)), *self._texts.values()])

    def _include(self, of: FunctionType) -> None:
        self._begun[of.__name__] = of
        function = inspect.unwrap(of)
        if not isinstance(function, FunctionType) or function.__closure__:
            raise _invalid(f"'{of.__name__}' uses variables of the function in which it was defined; pass them as arguments")
        try:
            text = textwrap.dedent(inspect.getsource(function))
            tree = ast.parse(text)
        except (OSError, TypeError, SyntaxError):
            raise _invalid(f"the text of '{of.__name__}' is not known to Python; define it in a file, and import it") from None
        defined = tree.body[0]
        if not isinstance(defined, (ast.FunctionDef, ast.AsyncFunctionDef)):
            raise _invalid(f"'{of.__name__}' is not a function that is defined with `def`")
        # The settings are in the definition already, and may use variables.
        kept = [one for one in defined.decorator_list if not _sets_up(one, function)]
        first = min([defined.lineno, *(one.lineno for one in kept)])
        dropped = [one for one in defined.decorator_list if one not in kept]
        lines = text.splitlines()
        for one in dropped:
            # The `@` may be on a line of its own only with a continuation, which nobody writes.
            for number in range(one.lineno, (one.end_lineno or one.lineno) + 1):
                lines[number - 1] = ""
        defined.decorator_list = kept
        body = "\n".join(line for number, line in enumerate(lines, 1) if line or number >= first)
        code = compile(tree, "<cell>", "exec", __future__.annotations.compiler_flag, dont_inherit=True)
        for name in sorted(_globals_of(code)):
            self._need(name, of, function.__globals__)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                self._submodule(node, function.__globals__)
        self._texts[of.__name__] = body.strip("\n") + "\n"

    def _need(self, name: str, user: FunctionType, known: dict[str, Any]) -> None:
        """Sees to a name that the function does not define itself."""
        if name == "__name__" or (name not in known and hasattr(builtins, name)):
            return
        if name not in known:
            raise _invalid(f"'{user.__name__}' uses '{name}', which is not defined")
        value = known[name]
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value and value.__name__ != "__main__":
            whole = value.__name__
            self._imports.add(f"import {whole}" if whole == name else f"import {whole} as {name}")
        elif (found := _importable(value)) is not None:
            module, own = found
            self._imports.add(f"from {module} import {own}" + (f" as {name}" if own != name else ""))
        elif isinstance(value, FunctionType) and value.__name__ == value.__qualname__ == name:
            if name not in self._begun:
                self._include(value)
        else:
            if isinstance(value, type):
                kind, todo = "a class", "define it in a file, and import it"
            else:
                kind, todo = f"a value of type {type(value).__name__}", "write its value inside the function, or import the module that has it"
            raise _invalid(f"'{user.__name__}' uses '{name}', {kind} that exists only in this program; {todo}")

    def _submodule(self, node: ast.Attribute, known: dict[str, Any]) -> None:
        """`import a.b` binds only `a`: what is used as `a.b` is imported as such."""
        whole = _resolved(node, known)
        if isinstance(whole, ModuleType) and sys.modules.get(whole.__name__) is whole and whole.__name__ == ast.unparse(node):
            self._imports.add(f"import {whole.__name__}")


def _globals_of(code: CodeType) -> set[str]:
    """The names that code and the code inside it look up outside of functions."""
    steps = list(dis.get_instructions(code))
    used = {str(one.argval) for one in steps if one.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")}
    # The body of a class looks up its own names in the same way.
    used -= {str(one.argval) for one in steps if one.opname == "STORE_NAME"}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            used |= _globals_of(inner)
    return used


def _resolved(node: ast.AST, known: dict[str, Any]) -> object:
    """The value of a name, or of attributes of modules."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        of = _resolved(node.value, known)
        return getattr(of, node.attr, None) if isinstance(of, ModuleType) else None
    return None


def _sets_up(decorator: ast.expr, of: FunctionType) -> bool:
    """Whether it is `@millrace.function(…)`, under any name."""
    return isinstance(decorator, ast.Call) and _resolved(decorator.func, of.__globals__) is _settings_of


def _importable(value: object) -> Optional[tuple[str, str]]:
    """The module and the name from which a class, a function or the like can be imported."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None
