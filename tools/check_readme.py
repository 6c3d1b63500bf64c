"""Run all examples of the README in a fresh environment, with the packages that it names.

    python tools/check_readme.py dist/kseg-*.whl

`kseg` is that wheel; the other packages come from the index. Each line of shell must end with 0, or
with 1, by which verbs say that there is something to do; each block of Python must print what is
shown below it. Exits with 1 at the first that does not.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
#: A block, and what it prints.
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.M)
#: Behind this heading are the commands of a checkout.
END = "## From a checkout"


def steps(wheel: Path) -> list[tuple[str, str]]:
    """Commands for a shell, with what each must print; "" for anything."""
    found = []
    for language, text, shown in BLOCK.findall(README.read_text("utf-8").partition(END)[0]):
        if language == "python":
            found.append((f"python - <<'END'\n{text}END", shown))
        else:
            lines = (line.partition(" #")[0].strip() for line in text.splitlines())
            found += [(line.replace("'kseg[", f"'{wheel}["), "") for line in lines if line]
    return found


def main() -> int:
    """Make the environment and run the steps; returns the exit code."""
    wheel = Path(sys.argv[1]).resolve()
    commands = steps(wheel)
    assert commands[0][0].startswith(f"pip install '{wheel}["), commands[0]
    with tempfile.TemporaryDirectory() as place:
        home = Path(place, "venv")
        venv.create(home, with_pip=True)
        for command, shown in commands:
            ran = subprocess.run(
                ["bash", "-c", command],
                cwd=place,
                env={"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": place, "LC_ALL": "C.UTF-8"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            print(f"$ {command}\n{ran.stdout}", flush=True)
            codes = (0, 1) if command.startswith("kseg ") else (0,)
            if ran.returncode not in codes or "Traceback" in ran.stdout:
                print(f"exit {ran.returncode}")
                return 1
            if shown and ran.stdout.strip() != shown.strip():
                print(f"the README shows\n{shown}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
