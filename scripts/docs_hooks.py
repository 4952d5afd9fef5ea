"""MkDocs' hooks: pages that are made, not written; nothing is loaded from elsewhere.

``make docs`` runs ``scripts/docs_reference.py`` in the project's environment, which leaves its
pages in ``build/docs``; the site is built in another environment. The pages of the repository's
root (changelog and so on) are shown where they stand, not copied.
"""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import results_text

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "build" / "docs"
OF_THE_ROOT = {
    "about/changelog.md": "CHANGELOG.md",
    "about/conduct.md": "CODE_OF_CONDUCT.md",
    "about/contributing.md": "CONTRIBUTING.md",
    "about/security.md": "SECURITY.md",
}


def drawn() -> list[str]:
    """The committed figures, below results."""
    found = (ROOT / "results").glob("*/*/figures/*.svg")
    return sorted(path.relative_to(ROOT / "results").as_posix() for path in found)


def gallery(figures: list[str]) -> str:
    """The page of all figures, by report."""
    parts, last = ["# Figures\n\nEvery committed figure, by report; drawn by `make figures`."], ""
    for figure in figures:
        _, scale, report, _, name = figure.split("/")
        title = f"{report} (scale {scale})"
        parts += [f"\n## {title}\n"] if title != last else []
        last = title
        parts.append(f"**{name.removesuffix('.svg')}**\n\n![{name}]({figure}){{loading=lazy}}\n")
    return "\n".join(parts)


def on_files(files: Files, config: Any) -> Files:
    """Add them to the files of ``docs/``."""
    figures = {f"figures/{name}": ROOT / "results" / name for name in drawn()}
    files.append(File.generated(config, "figures.md", content=gallery(list(figures))))
    made = {path.relative_to(GENERATED).as_posix(): path for path in GENERATED.rglob("*.md")}
    shown = {place: ROOT / name for place, name in OF_THE_ROOT.items()}
    for place, path in (made | shown | figures).items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_pre_build(config: Any) -> None:
    """A claim that the tables contradict ends the build."""
    try:
        results_text.check()
    except results_text.StaleTextError as error:
        raise PluginError(str(error)) from None


# Links of <a> may lead anywhere; scripts, styles and pictures are part of the site. For a page with
# a Mermaid diagram the theme fetches the library that draws it from a server.
FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b[^>]*\srel=["']?(?:stylesheet|preconnect|preload)[^>]*(?:https?:)?//[^>]*>"""
    r"""|<\w+ class=["']?mermaid["' >]"""
)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that would load something from another server."""
    if found := FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output
