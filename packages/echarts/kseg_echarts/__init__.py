"""The script of Apache ECharts 6.1.0 with the parts that `kseg report` uses."""

from pathlib import Path


def script() -> str:
    """The script, as it stands in a page; it defines `window.echarts`."""
    return Path(__file__).with_name("echarts.js").read_text("utf-8")
