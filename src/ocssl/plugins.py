"""Plugins: modules outside ocssl that register parts; which of them a run used, and whether they are still the same.

The command line imports the modules that ``--plugin`` and ``OCSSL_PLUGINS`` name, also from the current folder. Files
of runs, sweeps and learners name the modules that they need, and reading them imports these from Python's path alone:
code that lies beside a file is not executed because the file says so.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from itertools import accumulate
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ocssl.errors import CheckpointError, ConfigError

PLUGINS = "OCSSL_PLUGINS"
"""Environment variable: modules that register parts, separated by commas."""
SCRIPT = "__main__"

_registered: dict[str, str] = {}  # module by part, e.g. "strategy recall"
_digests: dict[str, str | None] = {}  # of modules when they registered their last part: later edits do not run
_recorded: dict[str, str] = {}  # module by part, as files say
_failed: dict[str, str] = {}  # why modules that files name cannot be imported


class Plugin(BaseModel):
    """A module that registered parts.

    Attributes:
        module: its name; ``__main__`` for a script or notebook.
        version: of the package that it belongs to; None where it has none.
        digest: SHA-256 of its source file; in a package, of all Python files of the package. None without a file.
        names: the parts that it registered, e.g. ``strategy recall``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    version: str | None
    digest: str | None
    names: list[str]


def import_plugin(module: str, *, here: bool = False) -> None:
    """Import a module that registers parts.

    Args:
        here: look for it in the current folder, too, if Python's path does not have it.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        top, folder = module.partition(".")[0], os.getcwd()
        if not here or error.name != top or folder in sys.path or not any(Path(folder).glob(f"{top}*")):
            raise
        sys.path.append(folder)
        importlib.invalidate_caches()
        importlib.import_module(module)


def import_plugins() -> None:
    """Import the modules that ``OCSSL_PLUGINS`` names."""
    for module in named():
        _import_or_refuse(module, f"'{module}' of {PLUGINS}", here=True)


def named() -> list[str]:
    """The modules that ``OCSSL_PLUGINS`` names."""
    return [*filter(None, map(str.strip, os.environ.get(PLUGINS, "").split(",")))]


def command(words: str, *more: str | Path) -> str:
    """A command and more words, ready for a shell, with flags that name these modules again."""
    flags = (word for module in named() for word in ("--plugin", module))
    return " ".join([words, *(shlex.quote(str(word)) for word in (*more, *flags))])


def name_plugins(modules: Sequence[str], where: str, *, here: bool = False) -> None:
    """Import modules and name them in ``OCSSL_PLUGINS``, so that workers have them, too.

    Args:
        where: what names them, for an error.
        here: as for :func:`import_plugin`.
    """
    for module in modules:
        _import_or_refuse(module, f"plugin '{module}' of {where}", here)
    if modules:
        os.environ[PLUGINS] = ",".join(dict.fromkeys([*named(), *modules]))


def _import_or_refuse(module: str, what: str, here: bool) -> None:
    try:
        import_plugin(module, here=here)
    except (Exception, SystemExit) as error:
        mend = "correct it, or put its folder on PYTHONPATH"
        if isinstance(error, ModuleNotFoundError) and not here:
            mend = f"add --plugin {module} in the folder that has it, or put that folder on PYTHONPATH"
        if module.endswith(".py") or os.sep in module:
            mend = f"name the module, {Path(module).stem}, in its folder or with that folder on PYTHONPATH"
        raise ConfigError(f"cannot import {what}: {reason(error)}; {mend}") from error


def reason(error: Exception | SystemExit) -> str:
    """An exception as one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ---------------------------------------------------------------------- which there are


def note(part: str, module: str) -> None:
    """Remember which module registered a part, and the source that it was imported from."""
    if module.partition(".")[0] != "ocssl":
        _registered[part] = module
        _digests[module] = _digest(module)


def registrar(part: str) -> str | None:
    """The module outside of ocssl that registered a part."""
    return _registered.get(part)


def modules_of(part: str, bases: Iterable[type]) -> set[str]:
    """The plugins behind a part: the module that registered it, and those of its base classes that registered any."""
    own = {_registered[part]} if part in _registered else set()
    return own | {base.__module__ for base in bases} & {*_registered.values()}


def registered() -> list[str]:
    """The modules whose parts are registered, sorted; a script is none."""
    return sorted({*_registered.values()} - {SCRIPT})


def raised_in(error: BaseException) -> str | None:
    """The line of a plugin in which an exception arose, or that called what raised it; None where no plugin did."""
    tops = {module.partition(".")[0] for module in registered()}
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in tops:
            found = f"line {line} of plugin '{module}'"
    return found


def describe(modules: Iterable[str]) -> list[Plugin]:
    """What is known of these plugins, in the order of their names."""
    return [
        Plugin(
            module=module,
            version=_version(module),
            digest=_digests.get(module),
            names=sorted(part for part, origin in _registered.items() if origin == module),
        )
        for module in sorted({*modules})
    ]


def _digest(module: str) -> str | None:
    """SHA-256 of the outermost package around a module that has a file, or of the module's own file."""
    around = accumulate(module.split("."), "{}.{}".format)
    root = next((found for name in around if getattr(found := sys.modules.get(name), "__file__", None)), None)
    if root is None:
        return None
    file = Path(str(root.__file__))
    files = sorted(file.parent.rglob("*.py")) if hasattr(root, "__path__") else [file]
    digest = hashlib.sha256()
    try:
        for source in files:
            digest.update(source.relative_to(file.parent).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    except OSError:
        return None
    return digest.hexdigest()


_distributions = cache(packages_distributions)


def _version(module: str) -> str | None:
    top = module.partition(".")[0]
    try:
        return version(_distributions().get(top, [top])[0])
    except (PackageNotFoundError, ValueError):
        said = getattr(sys.modules.get(top), "__version__", None)
        return said if isinstance(said, str) else None


# ---------------------------------------------------------------------- what files say


def recall_saved(saved: Any, where: str) -> list[Plugin] | None:
    """The plugins that a file lists, after :func:`recall`; None where it does not say, as files of earlier versions."""
    if saved is None:
        return None
    try:
        listed = TypeAdapter(list[Plugin]).validate_python(saved)
    except ValidationError as error:
        raise CheckpointError(f"{where} does not list its plugins as module, version, digest and names") from error
    recall({plugin.module: plugin.names for plugin in listed})
    return listed


def recall(parts: dict[str, list[str]]) -> None:
    """Import the modules that a file names; an unknown part of one that cannot be imported is explained later.

    Args:
        parts: names of parts by module, as ``{"mylab": ["strategy recall"]}``.
    """
    for module, names in parts.items():
        _recorded.update(dict.fromkeys(names, module))
        _failed.pop(module, None)
        there = module in sys.modules and all(name in _registered for name in names)
        if module != SCRIPT and not there:
            try:
                import_plugin(module)
            except (Exception, SystemExit) as error:
                _failed[module] = reason(error)


def explain(part: str) -> str | None:
    """Why a part is unknown that a file says to come from a plugin; None where no file says so.

    Args:
        part: e.g. ``strategy recall``.
    """
    module = _recorded.get(part)
    if module is None:
        return None
    kind, _, name = part.rpartition(" ")
    if module == SCRIPT:
        return f"{kind} '{name}' was registered by a script or notebook; go on from there, or put it into a module"
    why = f"cannot be imported ({_failed[module]})" if module in _failed else "does not register it any more"
    return (
        f"{kind} '{name}' comes from plugin module '{module}', which {why}; add --plugin {module} in the folder that "
        "has it, or put that folder on PYTHONPATH"
    )


def changed(before: Sequence[Plugin] | None, now: Sequence[Plugin]) -> str | None:
    """The first plugin that is not what it was, as a clause; None where none is known to differ.

    >>> plugin = Plugin(module="mylab", version=None, digest="0", names=["strategy recall"])
    >>> changed([plugin], [plugin.model_copy(update={"digest": "1"})])
    "the code of plugin module 'mylab' changed"
    >>> changed(None, [plugin])
    """
    if before is None:
        return None
    then, ours = ({plugin.module: plugin.digest for plugin in plugins} for plugins in (before, now))
    for module in {**then, **ours}:
        if module not in ours:
            return f"plugin module '{module}' is not used any more"
        if module not in then:
            return f"plugin module '{module}' came to be used"
        if None not in (then[module], ours[module]) and then[module] != ours[module]:
            return f"the code of plugin module '{module}' changed"
    return None
