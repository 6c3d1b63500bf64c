"""Functions stay small enough to be read in one go; a file is as long as its subject."""

from __future__ import annotations

from functools import cache

from tests.tidy import tree

FUNCTION_LINES_MAX = 70
SHORT_LINES, SHORT_SHARE = 15, 0.5


@cache
def functions() -> list[tree.Function]:
    python = [f for path in tree.files(".py") for f in tree.python_functions(path)]
    cython = [f for path in tree.files(".pyx", ".pxd") for f in tree.cython_functions(path)]
    return python + cython


def test_functions_keep_their_size() -> None:
    long = [f for f in functions() if f.lines > FUNCTION_LINES_MAX]
    assert [f"{f.path}:{f.line} {f.name}: {f.lines}" for f in long] == []


def test_most_functions_of_the_package_are_short() -> None:
    package = [f for f in functions() if f.path.startswith("kseg/")]
    short = sum(f.lines <= SHORT_LINES for f in package)
    assert short >= SHORT_SHARE * len(package)


def test_cython_functions_are_told_apart() -> None:
    kernels = {f.name for path in tree.files(".pyx") for f in tree.cython_functions(path)}
    assert {"crc32c", "scan_batches"} <= kernels
