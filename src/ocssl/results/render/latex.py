"""Tables as LaTeX: one file to ``\\input`` into a document that loads ``booktabs``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress, groupby

from ocssl.results.build import LEGEND, report_table, seeds_note
from ocssl.results.names import heading
from ocssl.results.report import Report
from ocssl.results.sections import Section
from ocssl.results.table import Table, TableColumn, Value

PREAMBLE = """\
% Input this file into a document with \\usepackage{booktabs}, UTF-8 and any engine; names in letters other than
% Latin and Greek need one that knows them, and a font that has them."""
GREEK = "αβγδεϵζηθϑικλμνξπρςστυφϕχψωΓΔΘΛΞΠΣΥΦΨΩ"
COMMANDS = (
    "alpha beta gamma delta varepsilon epsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho varsigma "
    "sigma tau upsilon varphi phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
USUAL = r"\footnotesize\setlength{\tabcolsep}{3.5pt}"
NARROW = r"\scriptsize\setlength{\tabcolsep}{2pt}\medmuskip=0mu"
"""Type and spaces of tables, and of those with tuned columns, which would be wider than a page's text."""

SPECIAL = {letter: f"\\{letter}" for letter in "&%$#_{}"}
SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "\\": r"\textbackslash{}"}
SPECIAL |= {"[": "{[}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {"→": r"$\rightarrow$", "±": r"$\pm$", "−": "$-$", "–": "--", "’": "'"}
SPECIAL |= {letter: rf"$\{command}$" for letter, command in zip(GREEK, COMMANDS.split(), strict=True)}
SPECIAL |= dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΧ", "oABEZHIKMNOPTX", strict=True))  # letters that look Latin have no command
SYMBOLS = {"b": "$b$", "n_p": "$n_p$"}


def to_latex(table: Table) -> str:
    """The table alone, without its title and notes."""
    return "\n".join(_tabular(table)) + "\n"


def latex_report(report: Report) -> str:
    """Every section as a table with caption and label."""
    return "\n\n".join([PREAMBLE, *("\n".join(_float(section)) for section in report.sections)]) + "\n"


def _float(section: Section) -> Iterator[str]:
    table = report_table(section, costs=False)  # a page is narrow
    block = ", $b_s={}$, $b={}$, $n_p={}$".format(*section.block) if section.block else ""
    yield r"\begin{table}[htbp]"
    yield rf"\centering{NARROW if any(column.title == 'tuned' for column in table.columns) else USUAL}"
    yield (
        rf"\caption{{{escape(table.title)}; {escape(heading(section.protocol))} protocol{block}. "
        rf"{escape(' '.join(LEGEND))}}}"
    )
    yield rf"\label{{tab:{section.id}}}"
    below = [column.group.startswith("k-NN") or column.title.startswith("forgetting") for column in table.columns]
    yield from _tabular(_part(table, [not one for one in below]))
    if any(below):
        yield r"\par\medskip"
        yield from _tabular(_part(table, below))
    yield from (rf"\par\smallskip {escape(note)}" for note in filter(None, (*table.notes, seeds_note(section))))
    yield r"\end{table}"


def _part(table: Table, chosen: Sequence[bool]) -> Table:
    """Some columns of a table."""
    rows = (replace(row, values=tuple(compress(row.values, chosen))) for row in table.rows)
    return replace(table, columns=tuple(compress(table.columns, chosen)), rows=tuple(rows))


def _tabular(table: Table) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{l{''.join(column.align[0] for column in table.columns)}}}"
    yield r"\toprule"
    if any(column.group for column in table.columns):
        yield from _groups(table.columns)
    yield _joined([escape(table.label), *(SYMBOLS.get(column.title, escape(column.title)) for column in table.columns)])
    yield r"\midrule"
    for row in table.rows:
        label = escape(row.label)
        yield _joined([label if row.ranked else rf"\textit{{{label}}}", *map(_cell, row.values)])
    yield from (r"\bottomrule", r"\end{tabular}")


def _groups(columns: Iterable[TableColumn]) -> Iterator[str]:
    heads, rules, start = [""], [], 2
    for group, together in groupby(columns, key=lambda column: column.group):
        width = len(list(together))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    yield _joined(heads)
    yield " ".join(rules)


def _cell(value: Value) -> str:
    if value.empty:
        return "--"
    if value.text is not None:
        return escape(value.text)
    number = value.plain().replace("−", "-")
    number = rf"\mathbf{{{number}}}" if value.best else number
    spread = rf" \pm {{\scriptstyle {value.spread()}}}" if value.std is not None else ""
    return f"${number}{spread}$"


def _joined(entries: list[str]) -> str:
    return " & ".join(entries) + r" \\"


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escape("50 % of n_p → ω"))
    50 \% of n\_p $\rightarrow$ $\omega$
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)
