"""Look at the built site as a browser shows it: links, pictures, and what axe-core finds.

    python tools/check_site.py build/site build/pictures --axe axe.min.js

Every link leads to a file and a place in it. axe-core (of npm) examines every page on a wide light
screen and on a narrow dark one; at no width is a page wider than the screen. Some pages are
photographed at both widths, light and dark. Needs chromium, chromedriver (Debian: chromium-driver)
and selenium. Exits 1 if anything was found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

WIDTHS = {1440: 900, 390: 844}
PICTURES = (
    "index",
    "start/operator",
    "how-to/broker-restarts",
    "start/data-engineer",
    "reference/look",
    "reference/reading",
    "format#magic-2-the-record-batch",
    "format#indexes",
    "benchmarks#who-is-on-the-other-side",
    "search",
)


class Page(HTMLParser):
    """The links of a page, and the places in it that links may name."""

    def __init__(self, text: str) -> None:
        """Read the text of a page."""
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names and where it leads."""
        del tag
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.places.add(value)


def pages_of(site: Path) -> list[Path]:
    """Every page, without the templates that the theme copies."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def dead_links(site: Path) -> Iterator[str]:
    """Each link inside the site that leads nowhere."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in pages_of(site)}
    for path, page in pages.items():
        for link in page.links:
            target, place = urldefrag(link)
            if urlsplit(link).scheme or target.startswith("//"):
                continue
            file = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            if not file.exists() or (
                place and file in pages and unquote(place) not in pages[file].places
            ):
                yield f"{path.relative_to(site.resolve())}: {link} leads nowhere"


def browser() -> Any:
    """Chromium without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
    ):
        options.add_argument(word)
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_script_timeout(300)  # axe takes its time on a long page
    return driver


def show(driver: Any, page: Path, width: int, colours: str, place: str = "") -> None:
    """Open a page, at a place in it, on a screen of a width, in light or dark colours."""
    screen = {
        "width": width,
        "height": WIDTHS[width],
        "deviceScaleFactor": 1,
        "mobile": width < 800,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    preference = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", preference)
    driver.get(f"{page.resolve().as_uri()}#{place}")


def findings(driver: Any, axe: str) -> Iterator[str]:
    """What axe-core finds in the page that is shown, and whether it is too wide."""
    if driver.execute_script("return document.documentElement.scrollWidth > innerWidth"):
        yield "the page is wider than the screen"
    driver.execute_script(axe)
    # The theme lets the keyboard reach what scrolls, some time after the screen got its width.
    run = "setTimeout(() => axe.run().then(arguments[arguments.length - 1]), 600)"
    result = driver.execute_async_script(f"dispatchEvent(new Event('resize')); {run}")
    for violation in result["violations"]:
        nodes = violation["nodes"]
        yield f"{violation['id']}: {violation['help']} ({len(nodes)}): {nodes[0]['html'][:160]}"


def main() -> int:
    """Check the site, take the pictures, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--axe", type=Path, required=True)
    given = parser.parse_args()
    found = list(dead_links(given.site))
    axe = given.axe.read_text("utf-8")
    given.pictures.mkdir(parents=True, exist_ok=True)
    driver = browser()
    try:
        pages = pages_of(given.site)
        for page in pages:
            name = page.relative_to(given.site).with_suffix("").as_posix()
            for width, colours in ((1440, "light"), (390, "dark")):
                show(driver, page, width, colours)
                found += [f"{name} at {width}, {colours}: {one}" for one in findings(driver, axe)]
        for name, _, place in (one.partition("#") for one in PICTURES):
            for width in WIDTHS:
                for colours in ("light", "dark"):
                    show(driver, given.site / f"{name}.html", width, colours, place)
                    file = f"{name}-{place}-{width}-{colours}.png".replace("/", "-")
                    driver.save_screenshot(str(given.pictures / file))
    finally:
        driver.quit()
    print("\n".join([*found, f"{len(pages)} pages, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
