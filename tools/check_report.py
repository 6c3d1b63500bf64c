"""Look at pages of `kseg report` in a browser: errors, requests, what axe-core finds, pictures.

    python tools/check_report.py build/report --axe axe.min.js

Makes the pages of three data directories: the demo's, one with markup wherever bytes are free, and
any that are named behind. Each is opened without a network, light and dark, 390 and 1440 pixels
wide. Needs chromium (Debian: chromium) and playwright. Exits 1 if anything was found.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

import kseg

_DEMO = Path(kseg.__file__).with_name("demo_data")
_HOSTILE = "</script><img src=x onerror=alert(1)>"


def hostile(directory: Path) -> Path:
    """A data directory with markup in keys, values and names."""
    log = directory / f"{'t' * 200}-0"
    with kseg.Log.open(log, mode="append", create=True) as opened:
        keys = [f"{_HOSTILE}{number}".encode() for number in range(50)]
        opened.append({"key": keys, "value": [_HOSTILE.encode()] * 50})
    (directory / _HOSTILE.replace("/", "_")).mkdir()
    return directory


def faults(browser: Browser, page: Path, axe: str, picture: Path) -> Iterator[str]:
    """What is wrong with one page at one width, light and dark."""
    for scheme in ("light", "dark"):
        for width in (1440, 390):
            context = browser.new_context(
                offline=True,
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": width, "height": 900},
            )
            tab = context.new_page()
            found: list[str] = []
            asked: list[str] = []
            tab.on("console", lambda said, found=found: found.append(said.text))
            tab.on("pageerror", lambda error, found=found: found.append(str(error)))
            tab.on("dialog", lambda box, found=found: (found.append(box.message), box.dismiss()))
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.goto(page.as_uri())
            tab.wait_for_timeout(500)
            where = f"{page.name}, {scheme}, {width}"
            if tab.evaluate("document.documentElement.scrollWidth") > width:
                found.append("wider than the screen")
            if tab.evaluate("document.querySelectorAll('.chart:not(:has(svg))').length"):
                found.append("a plot is not drawn")
            tab.screenshot(path=picture.with_name(f"{picture.name}-{scheme}-{width}.png"))
            yield from (f"{where}: {text}" for text in found)
            yield from (f"{where}: asks for {url}" for url in asked[1:])
            tab.evaluate(axe)
            for one in tab.evaluate("axe.run()")["violations"]:
                yield f"{where}: axe {one['id']}: {one['nodes'][0]['html'][:120]}"
            context.close()


def main() -> int:
    """Make the pages, open them, print what is wrong; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("data", type=Path, nargs="*")
    parser.add_argument("--axe", type=Path, required=True)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    shutil.rmtree(given.output, ignore_errors=True)
    given.output.mkdir(parents=True)
    found = []
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=given.chromium,
            args=["--no-sandbox"],  # as root in a container
        )
        for data in (_DEMO, hostile(given.output / "hostile"), *given.data):
            page = given.output / f"{data.name}.html"
            kseg.report(data).write(page.absolute())
            found += faults(
                browser, page.absolute(), given.axe.read_text(), given.output / data.name
            )
        browser.close()
    print(*found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
