"""The notebooks run from their first cell to their last, and show what they showed when stored.

`python -m tests.tidy.test_notebooks` runs them and stores what they show.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.tidy import tree

NOTEBOOKS = sorted((tree.ROOT / "examples").glob("*.ipynb"))
CELLS_MAX = 15


def shown_by(cell: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell as Jupyter does; returns what it prints, and its last value."""
    code = ast.parse(cell)
    last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
    printed, outputs = io.StringIO(), []
    with redirect_stdout(printed):
        exec(compile(code, "a cell", "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), "a cell", "eval"), names)
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        html = getattr(value, "_repr_html_", str)()
        data = {"text/html": html.splitlines(keepends=True)} if html else {}
        data["text/plain"] = repr(value).splitlines(keepends=True)
        result = {"data": data, "execution_count": None, "metadata": {}}
        outputs.append({**result, "output_type": "execute_result"})
    return outputs


def run(notebook: dict[str, Any]) -> None:
    """Run all cells in one namespace and a directory of their own, and store what they show."""
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        outputs = shown_by("".join(cell["source"]), names)
        for output in outputs:
            if "execution_count" in output:
                output["execution_count"] = number
        cell.update(execution_count=number, outputs=outputs)


def texts(notebook: dict[str, Any]) -> list[list[str]]:
    """The words that each cell shows: libraries may draw the lines of a table in another way."""
    found = []
    for cell in notebook["cells"]:
        outputs = cell.get("outputs", ())
        lines = [output.get("text") or output["data"]["text/plain"] for output in outputs]
        found.append(re.findall(r"[\w.:/-]+", "".join("".join(one) for one in lines)))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=tree.name)
def test_a_notebook_shows_what_it_stores(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text("utf-8"))
    stored = texts(notebook)
    run(notebook)
    assert texts(notebook) == stored, "run: python -m tests.tidy.test_notebooks"
    assert sum(cell["cell_type"] == "code" for cell in notebook["cells"]) <= CELLS_MAX


def main() -> None:
    """Store what the notebooks show."""
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text("utf-8"))
        with tempfile.TemporaryDirectory() as place:
            tempfile.tempdir = place
            run(notebook)
            os.chdir(tree.ROOT)
            tempfile.tempdir = None
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
