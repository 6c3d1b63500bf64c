"""Each log that a test writes and closes in good order passes `verify`, whatever the test asks.

The folders whose `conftest.py` imports `verified` are checked: the first few logs of a test, when
they are closed. A test that damages a log which is open says so: `@pytest.mark.damages("why")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from pathlib import Path

import pytest

from kseg.analysis.verify import verify
from kseg.log.log import Log
from kseg.log.writer import flush
from kseg.log.writer.state import LogState

#: Of a test; a property closes hundreds.
LOGS_MAX = 2
#: Smaller logs are decoded, too.
_DEEP_BYTES = 1 << 16


class Closed:
    """Stands between a log and its close.

    Attributes:
        left: logs that are to be checked yet.
    """

    left = 0

    def __init__(self, log_close: object = Log.close, files_close: object = flush.close) -> None:
        self._log_close, self._files_close = log_close, files_close
        self._clean: list[Path] = []

    def files_closed(self, state: LogState) -> bool:
        clean: bool = self._files_close(state)  # type: ignore[operator]
        if clean and self.left > 0:
            self._clean.append(state.path)
        return clean

    def log_closed(self, log: Log) -> None:
        self._log_close(log)  # type: ignore[operator]
        while self._clean:
            self.left -= 1
            check(self._clean.pop())


def check(path: Path) -> None:
    """Fail with what is damaged."""
    if path.is_dir():
        deep = sum(each.stat().st_size for each in path.glob("*.log")) < _DEEP_BYTES
        report = verify(path, deep=deep)
        assert report.ok, [str(one) for one in report.findings if one.severity == "error"]


_CLOSED = Closed()


@pytest.fixture(scope="session")
def closes() -> Iterator[Closed]:
    """The one that watches the logs of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "close", _CLOSED.files_closed)
        patch.setattr(Log, "close", wraps(Log.close)(lambda log: _CLOSED.log_closed(log)))
        yield _CLOSED


@pytest.fixture(autouse=True)
def verified(closes: Closed, request: pytest.FixtureRequest) -> Iterator[None]:
    closes.left = 0 if request.node.get_closest_marker("damages") else LOGS_MAX
    yield
    closes.left = 0
