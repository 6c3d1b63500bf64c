"""The version of a release stands in each place, and each Python that is named has wheels."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.tidy import tree
from tools.release import check_version

DATED = "# Changelog\n\n## 1.2.3 (2026-12-01)\n\n- A change.\n"


def test_a_tag_fits_where_both_files_name_its_version() -> None:
    assert check_version.faults_of("v1.2.3", '[project]\nversion = "1.2.3"', DATED) == []


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "fault"),
    [
        ("1.2.3", "1.2.3", DATED, "1.2.3: a tag is v1.2.3"),
        ("v1.2", "1.2", DATED, "v1.2: a tag is v1.2.3"),
        ("v1.2.3", "1.2.4", DATED, "v1.2.3: pyproject.toml says 1.2.4"),
        ("v1.2.3", "1.2.3", "## 1.2.3 (not released)\n", "v1.2.3: CHANGELOG.md has no line"),
        ("v1.2.3", "1.2.3", "## 11.2.3 (2026-12-01)\n", "v1.2.3: CHANGELOG.md has no line"),
        ("v1.2.3rc1", "1.2.3rc1", DATED, "v1.2.3rc1: CHANGELOG.md has no line"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(
    tag: str, version: str, changelog: str, fault: str
) -> None:
    faults = check_version.faults_of(tag, f'[project]\nversion = "{version}"', changelog)
    assert len(faults) == 1
    assert faults[0].startswith(fault)


def test_each_python_that_is_classified_has_wheels() -> None:
    settings = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    classifiers = " ".join(settings["project"]["classifiers"])
    versions = re.findall(r"Python :: 3\.(\d+)", classifiers)
    assert settings["tool"]["cibuildwheel"]["build"].split() == [f"cp3{v}-*" for v in versions]
