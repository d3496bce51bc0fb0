"""The documentation site builds without a warning, with every link and every reference resolved."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*(f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")), "docs/*.md"]
GENERATED = re.compile(r"(docs/)?(commands|index|api/\w+)\.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def make_docs(folder: Path) -> subprocess.CompletedProcess[str]:
    """``make docs`` in a folder, with the packages that run these tests instead of an environment of its own."""
    pytest.importorskip("mkdocs", reason="needs the extra 'docs'")
    pytest.importorskip("mkdocstrings", reason="needs the extra 'docs'")
    (folder / "env").mkdir()
    for part in ("torch", "docs"):
        (folder / "env" / f".installed-{part}").touch()
    command = ["make", "docs", "VENV=env", f"BIN={Path(sys.executable).parent}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all that the site is made of."""
    for name in ("docs", "src", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("mkdocs.yml", "Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_every_command(tree: Path) -> None:
    built = make_docs(tree)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    tmp_path = tree / "site"
    commands = (tmp_path / "commands" / "index.html").read_text()
    for name in ("run", "learn", "embed", "export", "probe", "data prepare"):
        assert f"ocssl {name}" in commands
    assert "--omega" in commands
    assert "partial_fit" in (tmp_path / "api" / "learner" / "index.html").read_text()
    assert "Start in five minutes" in (tmp_path / "index.html").read_text()
    assert "memory_size" in (tmp_path / "settings" / "index.html").read_text()
    for page in (tmp_path / "api").rglob("*.html"):
        assert not re.search(r":(class|func|meth|mod|attr):", page.read_text()), page


DEAD = {
    "[a page](nowhere.md)": "a link 'nowhere.md', but the target is not found",
    "[a heading](runs.md#no-such)": "a link 'runs.md#no-such', but the doc 'runs.md' does not contain an anchor",
    "[a file](figures/nothing.svg)": "a link 'figures/nothing.svg', but the target is not found",
    "[a folder](figures/)": "an unrecognized relative link 'figures/'",
    "[a root](/runs.md)": "an absolute link '/runs.md'",
}
PAGE, HEADING, *OTHERS = DEAD


@pytest.mark.slow
@pytest.mark.parametrize("planted", [[PAGE], [HEADING], OTHERS], ids=["page", "heading", "others"])
def test_make_docs_fails_on_a_dead_link(tree: Path, planted: list[str]) -> None:
    with (tree / "docs" / "demo.md").open("a", encoding="utf-8") as page:
        page.write("".join(f"\n{link}\n" for link in planted))
    built = make_docs(tree)
    assert built.returncode != 0
    for link in planted:
        assert DEAD[link] in built.stderr
    assert f"Aborted with {len(planted)} warnings in strict mode" in built.stdout + built.stderr


@pytest.mark.slow
def test_make_docs_fails_on_a_page_that_no_menu_has(tree: Path) -> None:
    (tree / "docs" / "forgotten.md").write_text("# Forgotten\n")
    built = make_docs(tree)
    assert built.returncode != 0
    assert "forgotten.md" in built.stderr


def headings(page: Path) -> set[str]:
    """The anchors of a page."""
    plain = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    words = (
        re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.+)$", plain, flags=re.M)
    )
    return {re.sub(r"[-\s]+", "-", heading) for heading in words}


def dead_links(root: Path) -> Iterator[str]:
    """Links between files that lead nowhere, without building the site; generated pages are not looked into."""
    for page in sorted(page for pattern in PAGES for page in root.glob(pattern)):
        plain = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in LINK.findall(re.sub(r"`[^`\n]*`", "", plain)):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if "://" in link or GENERATED.fullmatch(file):
                continue
            found = target.is_file() or (target.is_dir() and page.parent == root)
            if not found or (anchor and anchor not in headings(target)):
                yield f"{page.name}: {link}"


def test_every_link_between_files_leads_somewhere() -> None:
    assert list(dead_links(ROOT)) == []


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\n## Two words\n\n[b](b.md) [c](#two-words) [d](#no) [e](http://f)\n")
    (tmp_path / "README.md").write_text("[a](docs/a.md#two-words) [b](docs/a.md#three) [c](docs) [d](results)\n")
    assert list(dead_links(tmp_path)) == ["README.md: docs/a.md#three", "README.md: results", "a.md: b.md", "a.md: #no"]


def test_the_makefile_does_not_silence_warnings() -> None:
    """With --quiet, mkdocs neither prints nor counts them; with --verbose, it does not look at anchors."""
    (recipe,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line)
    assert "--strict" in recipe
    assert not re.search(r"--quiet|--verbose| -[qv]\b|\|\||/dev/null", recipe)


def test_the_slow_tests_have_what_the_site_needs() -> None:
    """Without the extra they would be skipped."""
    (rule,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("test-slow:"))
    assert ".installed-docs" in rule
