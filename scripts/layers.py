"""Draw docs/assets/layers.svg: the layers of the package that pyproject.toml's contract names.

python scripts/layers.py
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "assets" / "layers.svg"
WIDTH, ROW, LEFT, GAP = 760, 38, 40, 8

STYLE = """
text { font-family: system-ui, "Segoe UI", Roboto, sans-serif; font-size: 14px; fill: #1b2330 }
text { text-anchor: middle }
rect { rx: 6; stroke-width: 1.4; fill: #e3edfb; stroke: #3b6fb6 }
path { fill: none; stroke: #5b6673; stroke-width: 1.5 }
"""


def layers() -> list[list[str]]:
    """The packages and modules of each layer, top first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["id"] == "layers"]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def drawing(rows: list[list[str]]) -> str:
    """The picture as SVG."""
    height = ROW * len(rows) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The layers of the package; imports run downwards only">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" style="fill: #ffffff; stroke: none; rx: 0"/>',
        f'<path d="M20 {GAP} V{height - GAP} m-6 -9 l6 9 l6 -9"/>',
    ]
    for number, names in enumerate(rows):
        top = GAP + ROW * number
        width = (WIDTH - LEFT - GAP * len(names)) / len(names)
        for column, name in enumerate(names):
            left = LEFT + column * (width + GAP)
            parts.append(f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{ROW - GAP}"/>')
            parts.append(f'<text x="{left + width / 2:g}" y="{top + 20}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    OUT.write_text(drawing(layers()), encoding="utf-8")
