"""Pages of the documentation that are made from the code: the commands, and the reference of the Python API.

The page ``start.md`` becomes the site's first page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

API = {
    "learner": (
        "Learner and settings",
        ["ocssl.learner.Learner", "ocssl.config", "ocssl.options", "ocssl.budget", "ocssl.errors"],
    ),
    "parts": (
        "Parts of a learner",
        [
            "ocssl.strategies.base",
            "ocssl.strategies.alignment",
            "ocssl.strategies.targets",
            "ocssl.methods.base",
            "ocssl.methods.target",
            "ocssl.memory.base",
            "ocssl.optim.base",
            "ocssl.augment",
            "ocssl.nn.backbones",
            "ocssl.nn.encoder",
            "ocssl.batch",
            "ocssl.registry",
            "ocssl.checks",
        ],
    ),
    "data": (
        "Data and streams",
        [
            "ocssl.data.loading",
            "ocssl.data.dataset",
            "ocssl.data.streams.base",
            "ocssl.data.streams.class_incremental",
            "ocssl.data.streams.blurred",
            "ocssl.data.streams.ordered",
            "ocssl.data.streams.iid",
        ],
    ),
    "evaluation": (
        "Evaluation",
        [
            "ocssl.evaluation.features",
            "ocssl.evaluation.probes",
            "ocssl.evaluation.knn",
            "ocssl.evaluation.metrics",
            "ocssl.evaluation.diagnostics",
        ],
    ),
    "runs": (
        "Runs and results",
        [
            "ocssl.runs.config",
            "ocssl.runs.presets",
            "ocssl.runs.run",
            "ocssl.runs.naming",
            "ocssl.results.result",
            "ocssl.results.read",
            "ocssl.results.table",
            "ocssl.results.differences",
            "ocssl.results.sections",
            "ocssl.results.report",
            "ocssl.engines.make_engine",
            "ocssl.engines.jobs",
            "ocssl.sweeps.plan",
        ],
    ),
    "live": (
        "Live learning and export",
        [
            "ocssl.live.learning",
            "ocssl.live.options",
            "ocssl.live.gate",
            "ocssl.live.sample",
            "ocssl.live.sources",
            "ocssl.export.encoder",
            "ocssl.export.formats",
            "ocssl.export.hub",
            "ocssl.export.features",
        ],
    ),
}
"""Pages of the API reference: a title, and the modules, classes and functions on it."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {f"api/{name}.md": _api(title, modules) for name, (title, modules) in API.items()}
    start = Path(config.docs_dir, "start.md").read_text(encoding="utf-8")
    for path, text in {**pages, "commands.md": _commands(), "index.md": start}.items():
        files.append(File.generated(config, path, content=text))
    files.remove(files.src_uris["start.md"])
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the start lead to the first page."""
    return markdown.replace("](start.md", "](index.md")


def _api(title: str, modules: list[str]) -> str:
    return f"# {title}\n\n" + "\n\n".join(f"::: {module}" for module in modules) + "\n"


def _commands() -> str:
    from typer.main import get_command

    from ocssl.cli import app

    return "# Commands\n\n" + "".join(_command(get_command(app), "ocssl", depth=2))


def _command(command: Any, name: str, depth: int) -> list[str]:
    """A command, its arguments and options as tables, then the commands below it."""
    if subcommands := getattr(command, "commands", None):
        parts = [f"{'#' * depth} {name}\n\n{command.help}\n\n"] if depth > 2 else []
        for child, below in subcommands.items():
            parts += _command(below, f"{name} {child}", depth + bool(depth > 2))
        return parts
    text = [f"{'#' * depth} {name}\n\n"]
    for paragraph in (command.help or "").split("\n\n"):
        example = paragraph.removeprefix("Example: ")
        text.append(f"{paragraph}\n\n" if example == paragraph else f"```\n{example}\n```\n\n")
    with command.make_context(name, [], resilient_parsing=True) as context:
        parameters = [parameter for parameter in command.get_params(context) if parameter.name != "help"]
    rows = [_row(parameter) for parameter in parameters if not getattr(parameter, "hidden", False)]
    rest = "Every further [setting](settings.md) is a flag, too.\n\n" if len(rows) < len(parameters) else ""
    return [*text, "| | | |\n|---|---|---|\n", *rows, "\n", rest]


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = f"`{(parameter.metavar or parameter.name).upper()}`"
    else:
        shown = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    plain = default is None or callable(default) or default is False or str(default) in ("", "[]", "()")
    shown_default = "required" if parameter.required else "" if plain else f"`{getattr(default, 'value', default)}`"
    return f"| {shown} | {(parameter.help or '').replace('|', '/')} | {shown_default} |\n"
