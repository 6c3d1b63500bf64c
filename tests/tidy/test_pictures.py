"""The pictures of the README show what kseg prints today, and what the benchmarks say."""

from __future__ import annotations

import re

import pytest

from tests.tidy import tree
from tools.pictures import PICTURES


def comparable(picture: str) -> str:
    """A picture without the sizes that differ between file systems."""
    return re.sub(r"\d+(?=&#160;bytes&#160;of&#160;disk)", "0", picture)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_current(name: str) -> None:
    shown = (tree.ROOT / "docs" / name).read_text("utf-8")
    assert comparable(PICTURES[name]()) == comparable(shown), "run: python tools/pictures.py docs"
    assert "//" not in shown.replace("http://www.w3.org/2000/svg", ""), "it loads something"
