"""Both ways to a dump of the same batches: `python -m tests.fuzz.fuzz_dumps --rounds 2000`.

Lines are made straight from batches that are usual, and from columns of all others. Here batches
are spoilt with knowledge of their layout (`tests.fuzz.batches`), and a log of them is dumped as it
is, with small buffers too, and with all batches as columns. Lines, findings and the error at the
end must be the same.

Rounds depend on seed and number alone: `--only N` repeats one. Exit status 1 says that the two
disagree.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from kseg.cli import dump, row_writer
from kseg.cli.dump import Dump
from kseg.cli.kafka_dump import run as kafka_run
from kseg.cli.kafka_dump.lines import DumpOptions, stored_contents, style_of
from kseg.cli.kafka_dump.run import KafkaDump
from kseg.cli.rows import Style
from kseg.errors import KsegError
from kseg.files.selection import Selection
from tests import places
from tests.fuzz import batches
from tests.fuzz.fuzz_columns import Kept

#: So many of the logs have plain batches alone.
_PLAIN_SHARE = 0.6
_BATCHES = 24
_BUFFERS = (None, None, 1500, 6000)
STYLES = (
    Style("jsonl"),
    Style("jsonl", "utf8"),
    Style("text", "utf8"),
    Style("text", "hex"),
    Style("csv", "base64"),
    Style("csv", "utf8"),
)


def _kafka(path: Path, out: Any, source: Random) -> object:
    style, metadata = style_of(terminal=source.random() < 0.3), source.random() < 0.8
    parser = stored_contents if source.random() < 0.8 else None
    options = DumpOptions(style, metadata, deep=True, parser=parser)
    return KafkaDump(options, out).run([str(path)])


def _rows(path: Path, out: Any, source: Random) -> object:
    run = Dump(source.choice(STYLES), out)
    run.paths([str(path)], Selection((), ()))
    return run.findings, run.sinks.replaced


def _printed(path: Path, seed: str) -> tuple[bytes, str, object]:
    """Standard output, standard error, and what became of a dump."""
    source, out, told = Random(seed), io.BytesIO(), io.StringIO()
    made: Callable[..., object] = source.choice((_kafka, _rows))
    with redirect_stderr(told):
        try:
            ended = made(path, out, source)
        except KsegError as error:
            ended = type(error).__name__, str(error)
    return out.getvalue(), told.getvalue(), ended


@contextmanager
def _as_columns() -> Iterator[None]:
    def none_direct(table: Any, direct: object, other: Callable[[int, int], None]) -> None:
        other(0, len(table))

    with ExitStack() as stack:
        for module in (dump, kafka_run):
            stack.enter_context(mock.patch.object(module, "each_stretch", none_direct))
        yield


def run(kept: Kept, number: int, directory: Path) -> int:
    """One round: bytes printed; raises where two ways disagree."""
    seed = f"dumps {kept.seed} {number}"
    source = Random(seed)
    among = kept.plain if source.random() < _PLAIN_SHARE else None
    made = [kept.spoilt(source, among).data for _ in range(source.randrange(1, _BATCHES))]
    if source.random() < 0.1:
        made[-1] = batches.break_framing(made[-1], source)
    path = directory / f"{0:020}.log"
    path.write_bytes(b"".join(made))
    with (
        mock.patch.object(row_writer, "BUFFER_BYTES", source.choice(_BUFFERS) or 1 << 19),
        mock.patch.object(row_writer, "_GAPS_MAX", source.choice((1, 3, 4096))),
    ):
        mine = _printed(path, seed)
    with _as_columns():
        other = _printed(path, seed)
    for one, two in zip(mine, other, strict=True):
        assert one == two, f"round {number} of seed {kept.seed}: {one!r} | {two!r}"
    return len(mine[0])


def search(kept: Kept, rounds: int, *, first: int = 0) -> int:
    """Some rounds: bytes printed in all of them."""
    with tempfile.TemporaryDirectory(dir=places.in_memory()) as directory:
        return sum(run(kept, number, Path(directory)) for number in range(first, first + rounds))


def main() -> int:
    """Run the rounds of a seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", default="1", help="any text; the rounds follow from it")
    parser.add_argument("--only", type=int, help="run this round alone")
    options = parser.parse_args()
    rounds, first = (1, options.only) if options.only is not None else (options.rounds, 0)
    printed = search(Kept(options.seed), rounds, first=first)
    print(f"seed {options.seed}, {rounds} rounds: {printed} bytes printed the same in both ways")
    return 0


if __name__ == "__main__":
    sys.exit(main())
