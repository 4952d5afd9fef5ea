"""LaTeX tables (booktabs) from the texts that Markdown shows too."""

from collections.abc import Sequence

import pandas as pd

REPLACED = {"–": "--", "−": "$-$", "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "₂": r"$_2$"}
"""Characters that classic LaTeX fonts lack."""


def to_latex(shown: pd.DataFrame, right: Sequence[bool]) -> str:
    r"""A ``tabular`` with ``\toprule``, ``\midrule`` and ``\bottomrule``; needs ``booktabs`` only.

    Args:
        shown: texts; everything that LaTeX would read as markup is escaped.
        right: of every column, whether it is aligned to the right.
    """
    styler = shown.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(escape="latex", axis=1)
    columns = "".join("r" if flag else "l" for flag in right)
    text = styler.to_latex(hrules=True, column_format=columns)
    for character, replacement in REPLACED.items():
        text = text.replace(character, replacement)
    return str(text)
