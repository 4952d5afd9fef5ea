"""All reports of a scale as one HTML file that loads nothing: ``make report``."""

import base64
import html
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from refblend.errors import StudyError
from refblend.files import write_text

ORDER = ("m3", "r", "m2", "m1")
"""Reports that come first: those with answers."""
STYLE = """body {font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
padding: 0 1rem; color: #222; background: #fff} img {max-width: 100%}
table {border-collapse: collapse; display: block; overflow-x: auto; font-size: 0.85rem}
th, td {padding: 0.2rem 0.6rem; border-bottom: 1px solid #ddd; text-align: left}
nav a {margin-right: 1rem} section {border-top: 2px solid #222; margin-top: 3rem}"""


def write_page(results: Path, out: Path) -> Path:
    """Write the page of every ``<report>/report.md`` below a scale's results.

    Recommendations come first, then ablations and so on down to stability, then experiments.

    Raises:
        StudyError: there is no report.
    """
    found = sorted(results.glob("*/report.md"))
    if not found:
        raise StudyError(
            f"{results}: has no report", "Make one, e.g. `make study TARGET=m1 SCALE=smoke`."
        )
    found.sort(key=lambda path: [*ORDER, path.parent.name].index(path.parent.name))
    links = "".join(f'<a href="#{p.parent.name}">{p.parent.name}</a>' for p in found)
    sections = "".join(section(path, out.parent) for path in found)
    title = html.escape(f"refblend, scale {results.name}")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    write_text(out, f'<!doctype html><html lang="en">{head}<nav>{links}</nav>{sections}</html>\n')
    return out


def section(path: Path, base: Path) -> str:
    """A report as HTML, its figures inside, its other links from ``base``."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    for token in (child for each in tokens for child in [each, *(each.children or [])]):
        _place(token, path.parent, base)
    body = parser.renderer.render(tokens, parser.options, {})
    return f'<section id="{path.parent.name}">{body}</section>'


def _place(token: Token, folder: Path, base: Path) -> None:
    """Put a figure into the page, and let another link start at ``base``."""
    source = str(token.attrs.get("src", ""))
    if source.endswith(".svg"):
        data = base64.b64encode((folder / source).read_bytes()).decode()
        token.attrs["src"] = f"data:image/svg+xml;base64,{data}"
    target = str(token.attrs.get("href", ""))
    if target and "://" not in target and folder.is_relative_to(base):
        token.attrs["href"] = f"{folder.relative_to(base).as_posix()}/{target}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    try:
        print(write_page(folder, folder / "report.html"))
    except StudyError as error:
        sys.exit(f"error: {error}")
