"""Check the types of the Python on a page of docs, as mypy --strict sees it in a user's program.

    python tools/check_recipes.py docs/python.md

Exits 1 if mypy finds an error.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """\
import kseg
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
"""


def main() -> int:
    """Check each page that is named."""
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as place:
        for page in sys.argv[1:]:
            blocks = re.findall(r"```python\n(.*?)```", Path(page).read_text("utf-8"), re.DOTALL)
            assert blocks, f"{page} has no Python"
            for number, block in enumerate(blocks, 1):
                (Path(place) / f"recipe_{number}.py").write_text(HEAD + block)
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--ignore-missing-imports",
            "--config-file=",
            place,
        ]
        return subprocess.run(command, cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main())
