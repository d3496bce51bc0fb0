"""Names, glossary and imports, as docs/concepts.md and docs/architecture.md describe them."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ocssl"
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
        path.read_text(encoding="utf-8")
    )
    for path in sorted(SOURCE.rglob("*.py"))
}


def public(name: str) -> bool:
    return not name.startswith("_")


def classes(module: str) -> set[str]:
    """Public classes that a module defines."""
    return {node.name for node in MODULES[module].body if isinstance(node, ast.ClassDef) and public(node.name)}


def aliases(module: str) -> set[str]:
    """Public type aliases that a module defines: names in CamelCase at its top level."""
    found = set()
    for node in MODULES[module].body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if re.fullmatch(r"[A-Z][a-z]\w*", name)}


def exported(module: str) -> list[str]:
    """The names in a module's ``__all__``."""
    for node in MODULES[module].body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def documented() -> set[str]:
    """Modules and classes in the API reference."""
    tree = ast.parse((ROOT / "docs" / "hooks.py").read_text())
    (pages,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "API"
    )
    return {name for _, names in ast.literal_eval(pages).values() for name in names}


def public_classes() -> dict[str, str]:
    """Classes that a package exports or that the API reference describes, and where each of them is defined."""
    defined = {name: module for module in MODULES for name in classes(module)}
    names = {name for module in MODULES for name in exported(module)}
    for entry in documented():
        names |= classes(entry) if entry in MODULES else {entry.rpartition(".")[2]}
    return {name: defined[name] for name in sorted(names & defined.keys())}


def glossary() -> str:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    return page[page.index("## Glossary") :]


def test_no_two_public_classes_or_aliases_share_a_name() -> None:
    places = defaultdict(list)
    for module in MODULES:
        for name in classes(module) | aliases(module):
            places[name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_every_public_class_is_in_the_glossary() -> None:
    named = set(re.findall(r"`(\w+)`", glossary()))
    missing = {name: module for name, module in public_classes().items() if name not in named}
    assert missing == {}, "add them to the glossary of docs/concepts.md, with a sentence on what they are"


def test_the_glossary_names_no_class_that_is_gone() -> None:
    everything = {name for module in MODULES for name in classes(module) | aliases(module)}
    assert {name for name in re.findall(r"`([A-Z]\w*[a-z]\w*)`", glossary()) if name not in everything} == set()


def test_every_kind_of_part_is_in_the_glossary() -> None:
    from ocssl.config import REGISTRIES

    assert {kind for kind in (*REGISTRIES, "stream", "dataset") if f"`{kind}`" not in glossary()} == set()


def test_every_module_is_on_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {name for name in modules if public(name) and not re.search(rf"`{name}[`/]", page)} == set()


def test_an_installed_package_has_every_file() -> None:
    """A checkout has those that ``package-data`` forgets; a wheel has not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = {pattern: {*SOURCE.glob(pattern)} for pattern in project["tool"]["setuptools"]["package-data"]["ocssl"]}
    files = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == set().union(*listed.values())
    assert all(listed.values()), f"no file is named like {[pattern for pattern, found in listed.items() if not found]}"


def test_the_import_contracts_hold() -> None:
    """Layers, and no circle; see [tool.importlinter] in pyproject.toml."""
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_the_root_package() -> None:
    """Its lazy names import everything."""
    found = [module for module in MODULES if module != "ocssl" and "ocssl" in set(imported(MODULES[module]))]
    assert found == []


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module imports from; ``from ocssl import data`` is ``ocssl.data``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "ocssl":
            submodules = (alias.name if f"ocssl.{alias.name}" in MODULES else "" for alias in node.names)
            yield from (f"ocssl.{name}".rstrip(".") for name in submodules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


@pytest.mark.parametrize("package", ["ocssl.results", "ocssl.common", "ocssl.cli"])
def test_a_package_is_imported_without_torch(package: str) -> None:
    script = f"import sys, {package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("name", ["nn.ResNet18", "export.load", "live.learn", "errors.DataError"])
def test_what_the_pages_name_is_there_after_importing_the_package_alone(name: str) -> None:
    assert subprocess.run([sys.executable, "-c", f"import ocssl; ocssl.{name}"], check=False).returncode == 0


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py")]), ids=lambda p: p.name
)
def test_scripts_outside_the_package_import_what_exists(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "ocssl":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name) or f"{node.module}.{alias.name}" in MODULES, alias.name


def test_windows_is_told_where_ocssl_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile((SOURCE / "__init__.py").read_text(encoding="utf-8"), "ocssl", "exec")
    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(ImportError, match="on Windows, use it in WSL"):
        exec(code, {"__name__": "ocssl"})
