"""A report's tables as LaTeX: one file to ``\\input`` into a document that loads ``booktabs``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ocssl.report.columns import Column, Entry, columns, notes, tuned_note
from ocssl.report.model import Report, Sheet
from ocssl.report.names import spell

PREAMBLE = """\
% Input this file into a document with \\usepackage{booktabs}, UTF-8 and any engine; names in letters other than
% Latin and Greek need one that knows them, and a font that has them."""
GREEK = {
    "αβγδεϵζηθϑικλμνξπρςστυφϕχψω": (
        "alpha beta gamma delta varepsilon epsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho varsigma "
        "sigma tau upsilon varphi phi chi psi omega"
    ),
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
}
"""Letters, and what LaTeX calls them."""

LATIN = dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΧ", "oABEZHIKMNOPTX", strict=True))
"""Greek letters that LaTeX has no name for: Latin ones look the same."""

USUAL = r"\footnotesize\setlength{\tabcolsep}{3.5pt}"
NARROW = r"\scriptsize\setlength{\tabcolsep}{2pt}\medmuskip=0mu"
"""Type and spaces of tables, and of those with tuned columns, which would be wider than a page's text."""

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "→": r"$\rightarrow$",
    "−": "--",
    "–": "--",
    "’": "'",
    "±": r"$\pm$",
} | {letter: f"\\{letter}" for letter in "&%$#_{}"}
SPECIAL |= LATIN
SPECIAL |= {
    letter: rf"$\{name}$"
    for letters, names in GREEK.items()
    for letter, name in zip(letters, names.split(), strict=True)
}


def to_latex(report: Report) -> str:
    """Every sheet as a table of its own."""
    return "\n\n".join([PREAMBLE, *("\n".join(_table(sheet)) for sheet in report.sheets)]) + "\n"


def _table(sheet: Sheet) -> Iterator[str]:
    shown = columns(sheet, costs=False)  # a page is narrow
    block = ", $b_s={}$, $b={}$, $n_p={}$".format(*sheet.block) if sheet.block else ""
    yield r"\begin{table}[htbp]"
    yield rf"\centering{NARROW if tuned_note(sheet) else USUAL}"
    yield (
        rf"\caption{{{escape(sheet.title)}; {escape(spell(sheet.protocol))} protocol{block}. "
        r"Best in \textbf{bold}, second best \underline{underlined}.}"
    )
    yield rf"\label{{tab:{sheet.id}}}"
    yield rf"\begin{{tabular}}{{l{'r' * len(shown)}}}"
    yield r"\toprule"
    if any(column.group for column in shown):
        yield from _groups(shown)
    yield _joined(["", *(_head(column) for column in shown)])
    yield r"\midrule"
    for line in sheet.lines:
        label = escape(sheet.label(line))
        yield _joined(
            [label if line.contends else rf"\textit{{{label}}}", *(_entry(column.entry(line)) for column in shown)]
        )
    yield from (r"\bottomrule", r"\end{tabular}")
    for note in notes(sheet):
        yield rf"\par\smallskip {escape(note)}"
    yield r"\end{table}"


def _groups(shown: list[Column]) -> Iterator[str]:
    heads, rules, start = [""], [], 2
    for group, together in groupby(shown, key=lambda column: column.group):
        width = len(list(together))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    yield _joined(heads)
    yield " ".join(rules)


def _head(column: Column) -> str:
    return {"b": "$b$", "n_p": "$n_p$"}.get(column.title, escape(column.title))


def _entry(entry: Entry) -> str:
    if entry.number is None:
        return "--"
    if entry.text is not None:
        return escape(entry.text)
    number = entry.plain().replace("−", "-")
    number = rf"\mathbf{{{number}}}" if entry.place == "best" else number
    spread = rf" \pm {{\scriptstyle {entry.spread_text()}}}" if entry.spread is not None else ""
    text = f"${number}{spread}$"
    return rf"\underline{{{text}}}" if entry.place == "second" else text


def _joined(entries: list[str]) -> str:
    return " & ".join(entries) + r" \\"


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escape("50 % of n_p → ω"))
    50 \% of n\_p $\rightarrow$ $\omega$
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)
