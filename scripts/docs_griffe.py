"""Docstrings as Markdown: what stands in them for Sphinx is rewritten before the site shows it."""

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":\w+:`[~.]?([^`]+)`")


class MarkdownDocstrings(Extension):
    """A role becomes plain code, and ``Example::`` loses its second colon."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
