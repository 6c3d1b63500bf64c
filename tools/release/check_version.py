"""Refuse a tag that does not fit: pyproject.toml and the changelog must name its version.

Usage: python tools/release/check_version.py v1.2.3
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def faults_of(tag: str, pyproject: str, changelog: str) -> list[str]:
    """What does not fit, a line each.

    Args:
        tag: of the commit to release, `v1.2.3`.
        pyproject: the text of pyproject.toml.
        changelog: the text of CHANGELOG.md; a released version has a date behind it.
    """
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        return [f"{tag}: a tag is v1.2.3, v1.2.3a1, v1.2.3b1 or v1.2.3rc1"]
    faults = []
    version = tomllib.loads(pyproject)["project"]["version"]
    if tag != f"v{version}":
        faults.append(f"{tag}: pyproject.toml says {version}")
    if not re.search(rf"^## {re.escape(tag[1:])} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        faults.append(f"{tag}: CHANGELOG.md has no line '## {tag[1:]} (YEAR-MONTH-DAY)'")
    return faults


def main(tag: str) -> int:
    """Print a line for each fault; 1 if there is any."""
    faults = faults_of(tag, Path("pyproject.toml").read_text(), Path("CHANGELOG.md").read_text())
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
