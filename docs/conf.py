"""Sphinx settings of the site that `make site` builds from the pages in this folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import kseg

for module in (kseg.internal, kseg.reports):  # autodoc sees only names that are loaded
    vars(module).update((name, getattr(module, name)) for name in module.__all__)
sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "kseg"
author = "the kseg authors"
release = kseg.__version__
html_title = "kseg"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_design",
    "sphinx_copybutton",
    "command_line",
    "drawings",
]
exclude_patterns = ["_*", "checklist.md"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
napoleon_numpy_docstring = False
maximum_signature_line_length = 80
highlight_language = "none"
suppress_warnings = ["ref.python"]  # attributes named `bytes` shadow the type in Sphinx's search

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["kseg.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
project_copyright = "the kseg authors, Apache License 2.0"


def as_napoleon_has_it(
    _app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Write a docstring as napoleon understands it: the `code` of Markdown as literals of RST.

    A colon in a sentence of Returns, or of a property, ends no type. Attributes in one line get a
    line each.
    """
    text = "\n".join(lines)
    text = re.sub(r"(?<![`:\w])`([^`\n]+(?:\n[^`\n]+)?)`(?!`)(?=s\b)", r"``\1``\\ ", text)
    text = re.sub(r"(?<![`:\w])`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", r"``\1``", text)
    text = re.sub(r"(\w)_(?=[\s,.;:)\]])", r"\1\\_", text)
    text = re.sub(r"^((?:Returns|Yields):\n +)(?=\S)", r"\1: ", text, flags=re.M)
    if what in ("property", "attribute", "data"):
        text = f": {text}"
    head, section, rest = text.partition("Attributes:\n")
    several = r"^    (\w+(?:, \w+)+)(:.*\n(?: {5}.*\n)*)"
    rest = re.sub(several, _each, f"{rest}\n", flags=re.M)
    lines[:] = f"{head}{section}{rest}".split("\n")


def _each(found: re.Match[str]) -> str:
    return "".join(f"    {name}{found[2]}" for name in found[1].split(", "))


#: The classes of `kseg` that users call; the others come from functions.
CALLED = ("BatchBuilder", "BatchOptions", "LogConfig", "TopicPartition")


def call(
    _app: Any, what: str, name: str, _object: Any, _options: Any, given: str, returned: str
) -> tuple[str, str] | None:
    """Leave out how a class is called where only kseg calls it."""
    module, _, last = name.rpartition(".")
    own = module in ("kseg", "kseg.reports", "kseg.internal")
    return ("", "") if what == "class" and own and last not in CALLED else None


def signature_lines(_app: Any, _page: str, _template: str, context: Any, _doctree: Any) -> None:
    """Make spans of the lines of a long signature: in a `dt` HTML allows no `dl`."""

    def spans(found: re.Match[str]) -> str:
        return re.sub("<(/?)d[ld]>", r"<\1span>", found[0])

    lines = r'(?<=<span class="sig-paren">\(</span>)\s*<dl>.*?</dl>'
    context["body"] = re.sub(lines, spans, context.get("body", ""), flags=re.DOTALL)


def literal_stars(_app: Any, _context: Any, lines: list[str]) -> None:
    """Keep the stars of file patterns in the help of a verb: to RST they begin emphasis."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Any) -> None:
    """Tell Sphinx about the hooks; the one for docstrings runs before that of napoleon."""
    app.connect("sphinx-click-process-description", literal_stars)
    app.connect("html-page-context", signature_lines)
    app.connect("autodoc-process-docstring", as_napoleon_has_it, priority=100)
    app.connect("autodoc-process-signature", call)
