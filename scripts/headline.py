"""Draw the README's figure, docs/assets/headline.png, from results/cpu; `make figures` calls it."""

from pathlib import Path

import pandas as pd

from refblend.study.report.headline import regimes
from refblend.study.report.style import apply_style, write_figure

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Draw it."""
    apply_style()
    figure, caption = regimes(pd.read_parquet(ROOT / "results" / "cpu" / "runs.parquet"))
    write_figure(figure, ROOT / "docs" / "assets" / "headline.png")
    print(caption)


if __name__ == "__main__":
    main()
