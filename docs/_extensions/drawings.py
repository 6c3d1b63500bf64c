"""Drawings of bytes, made from the tables of a page that say which field lies where.

A table gets a drawing if its head has `type` and `field`, as in `format.md`, or `entry` and
`bytes`, as that of the indexes. Each field is a box, as wide as it has bytes; a field of no fixed
length has a dashed border. The boxes are HTML: they wrap on a phone and take the theme's colours.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes

BYTES = {"i8": 1, "i16": 2, "i32": 4, "u32": 4, "i64": 8}
Fields = list[tuple[str, str, str]]  # type, name, position


def draw(title: str, fields: Fields) -> nodes.raw:
    """A list of boxes with a caption."""
    boxes = []
    for kind, name, position in fields:
        count = BYTES.get(kind)
        width = f"{count} byte{'s' * (count > 1)}" if count else kind or "any length"
        place = f", at {position}" if position.isdecimal() else ""
        boxes.append(
            f'<li style="flex-grow: {count or 8}"{"" if count else " class=any"}>'
            f"{html.escape(name)}<small>{html.escape(width + place)}</small></li>"
        )
    caption = f"<figcaption>{html.escape(title)}</figcaption>" if title else ""
    text = f'<figure class="kseg-bytes">{caption}<ol>{"".join(boxes)}</ol></figure>'
    return nodes.raw("", text, format="html")


def drawings(head: list[str], rows: list[list[str]]) -> Iterator[nodes.raw]:
    """The drawings of a table: one, or one for each magic, or one for each kind of file."""
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    if {"entry", "bytes"} <= set(head):
        for cell in cells:
            parts = [part.split(maxsplit=1) for part in cell["entry"].split(", ")]
            yield draw(f"{cell['file']}, each entry", [(kind, name, "") for kind, name in parts])
        return
    if not {"type", "field"} <= set(head):
        return
    columns = [name for name in head if re.fullmatch(r"position|magic \d at", name)]
    for column in columns or [""]:
        present = [cell for cell in cells if not column or cell[column]]
        title = column.removesuffix(" at") if len(columns) > 1 else ""
        yield draw(title, [(c["type"], c["field"], c.get(column, "")) for c in present])


def add_drawings(_app: Any, document: nodes.document) -> None:
    """Put the drawings of each table before it."""
    for table in list(document.findall(nodes.table)):
        head, *rows = [
            [entry.astext() for entry in row.findall(nodes.entry)]
            for row in table.findall(nodes.row)
        ]
        table.parent.insert(table.parent.index(table), list(drawings(head, rows)))


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the drawings."""
    app.connect("doctree-read", add_drawings)
    return {"parallel_read_safe": True}
