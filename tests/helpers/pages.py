"""The Python code that the pages on parts of one's own print."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
EXTENDING = DOCS / "extending.md"
PAGES = [EXTENDING, *sorted(DOCS.glob("extending-*.md"))]


def printed_blocks(*pages: Path) -> list[str]:
    """Every block of Python of these pages, in their order."""
    texts = (page.read_text(encoding="utf-8") for page in pages)
    return [block for text in texts for block in re.findall(r"```python\n(.*?)```", text, flags=re.S)]
