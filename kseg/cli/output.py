"""Output: bytes in blocks to standard output, documents, aligned text, progress.

Data is written to standard output and nothing else is. For files that verbs make, lines say how to
move them into place, and how to give them to their owner.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import StringIO
from itertools import islice, zip_longest
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any, Final

import click

from kseg.cli.failures import complain
from kseg.commands import command_line, printable
from kseg.constants import StrPath
from kseg.files import ownership
from kseg.files.atomic import replace_file

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from kseg.files.checkpoints import TopicPartition
    from kseg.workers import Put

#: The words of a finding that say how bad it is.
_SEVERITIES: Final = {
    "error": "bold red",
    "lost": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
}
#: The coloured parts of a line: severities, commands, outcomes of `doctor`, sizes.
_STYLES: Final = (
    (re.compile(r"^ *(error|warning|note|lost)(?=: )"), ""),
    (re.compile(r"^ {4,}((?:kseg|rm|kafka-[a-z-]+\.sh) .*)"), "green"),
    (
        re.compile(r"\b(the broker does not start|goes offline|LOSES (?:\d+ )?records?)\b"),
        "bold red",
    ),
    (re.compile(r"^Kafka [\d.]+: (the broker starts)\b"), "bold green"),
    (re.compile(r"(?<![\w.])(\d[\d.]* (?:B|[KMGT]iB))\b"), "cyan"),
)
#: Whether `--plain` was given, in the meta of click's context.
PLAIN: Final = "kseg.plain"
#: The text between the columns of a table.
_GAP: Final = "  "
#: A longer name is printed on a line of its own.
_NAME_MAX: Final = 32
#: The least width of a column of words, if the terminal is wide enough.
_WORDS_MIN: Final = 20
#: The least width of a column of folded text, with the gap.
_FOLDED_MIN: Final = 14
#: The time between the lines of a long run where standard error is no terminal.
_LINE_SECONDS: Final = 60


def binary_stdout() -> IO[bytes]:
    """Standard output as bytes, after any text that was written before."""
    sys.stdout.flush()
    return sys.stdout.buffer


def taker(write: Callable[[Any], object]) -> Put:
    """A function that receives results of pieces of work: it writes texts, and calls functions.

    So a message, which a function prints, appears after the rows before it.
    """

    def take(result: Any) -> None:
        if callable(result):
            result()
        else:
            write(result)

    return take


def write_document(schema: str, document: dict[str, Any]) -> None:
    """One JSON document on one line: `{"schema": "kseg.<verb>/1", ...}`."""
    write_json({"schema": f"kseg.{schema}", **document})


def write_long_document(
    schema: str, document: dict[str, Any], name: str, rows: Iterable[dict[str, Any]]
) -> None:
    """One JSON document on one line; its rows come last, some at a time, as they may be many."""
    import json

    text = json.dumps({"schema": f"kseg.{schema}", **document})
    click.echo(f'{text[:-1]}, "{name}": [', nl=False)
    comma = ""
    lines = map(json.dumps, rows)
    while batch := list(islice(lines, 1000)):
        click.echo(comma + ", ".join(batch), nl=False)
        comma = ", "
    click.echo("]}")


def path_field(paths: Sequence[str]) -> str | list[str]:
    """`path` of a document: the given path, or all of them."""
    return paths[0] if len(paths) == 1 else list(paths)


def write_json(document: dict[str, Any]) -> None:
    """One JSON document on one line, in ASCII."""
    import json  # imported late: dumps have no document

    click.echo(json.dumps(document))


def write_line(text: str = "") -> None:
    """One line of text, with control characters escaped; in colour on a terminal."""
    line = printable(text)
    if not wants_color():
        click.echo(line)
        return
    from rich.text import Text

    colored = Text(line)
    for pattern, style in _STYLES:
        for match in re.finditer(pattern, line):
            colored.stylize(_SEVERITIES.get(match[1], style), *match.span(1))
    _echo_drawn(colored, soft_wrap=True)


def write_lines(lines: Iterable[str]) -> None:
    """Lines of text, each written by `write_line`."""
    for line in lines:
        write_line(line)


def wants_color() -> bool:
    """Whether text on standard output is coloured: as NO_COLOR or FORCE_COLOR say, or a terminal.

    An empty variable says nothing.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _echo_drawn(drawn: Text | Table, *, soft_wrap: bool, least: int = 0) -> None:
    """Print rich output as wide as the terminal; 80 columns if there is no terminal.

    Args:
        drawn: the text, or the table.
        soft_wrap: leave the breaks of lines to the terminal.
        least: the number of columns that it needs, which may be more than the terminal has.
    """
    from rich.console import Console

    console = Console(
        file=StringIO(),
        force_terminal=True,
        color_system="standard",
        highlight=False,
        width=max(shutil.get_terminal_size().columns, least),
    )
    with console.capture() as captured:
        console.print(drawn, soft_wrap=soft_wrap)
    click.echo(captured.get(), nl=False, color=True)


def write_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows in aligned columns: numbers to the right, all else to the left."""
    left = [
        name
        for at, name in enumerate(head)
        if not rows or not all(isinstance(row[at], int | float | None) for row in rows)
    ]
    _draw(head, _cells(rows), left)


def write_columns(head: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Some columns of rows as a table."""
    write_table(head, [[row[name] for name in head] for row in rows])


#: The columns of fitted tables whose text begins at the left.
_LEFT: Final = ("partition", "codecs", "magic", "key", "layout", "source")


def write_fitted_table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    priority: Sequence[str],
) -> None:
    """Rows in aligned columns, as many as fit the terminal; 80 characters if there is no terminal.

    The first column is always shown. A name longer than `_NAME_MAX` is on a line of its own.

    Args:
        head: the names of the columns.
        rows: a cell for each column.
        priority: the columns to show, the most important first, as far as there is room.
    """
    body = _cells(rows)
    widths = dict(zip(head, _widths(head, body, _NAME_MAX), strict=True))
    names = {head[0]}
    room = shutil.get_terminal_size().columns - widths[head[0]]
    for name in priority:
        if len(_GAP) + widths[name] <= room:
            names.add(name)
            room -= len(_GAP) + widths[name]
    shown = [at for at, name in enumerate(head) if name in names]
    _draw([head[at] for at in shown], [[row[at] for at in shown] for row in body], _LEFT, _NAME_MAX)


def _draw(
    head: Sequence[str], body: Sequence[list[str]], left: Sequence[str], name_max: int = sys.maxsize
) -> None:
    """Draw a table in colour on a terminal, else in plain lines."""
    if wants_color():
        _draw_by_rich(head, body, left)
        return
    widths = _widths(head, body, name_max)
    for row in [list(head), *body]:
        if len(row[0]) > widths[0]:
            click.echo(row[0])
            row[0] = ""
        cells = (
            text.ljust(width) if name in left else text.rjust(width)
            for name, text, width in zip(head, row, widths, strict=True)
        )
        click.echo(_GAP.join(cells).rstrip())


def _widths(head: Sequence[str], body: Sequence[list[str]], name_max: int) -> list[int]:
    """The widths of columns; in the first column, names longer than `name_max` do not count."""
    return [
        max([len(name), *(len(row[at]) for row in body if at or len(row[at]) <= name_max)])
        for at, name in enumerate(head)
    ]


def _draw_by_rich(head: Sequence[str], body: Sequence[list[str]], left: Sequence[str]) -> None:
    """Draw a table in colour, as wide as the terminal, with long text folded."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    words = [name in left and any(" " in row[at] for row in body) for at, name in enumerate(head)]
    whole = [max(len(row[at]) for row in [head, *body]) + len(_GAP) for at in range(len(head))]
    widths = [_WORDS_MIN if words[at] else width for at, width in enumerate(whole)]
    columns = shutil.get_terminal_size().columns
    # Narrower than this, a table cannot be read: the terminal then breaks its lines.
    least = sum(
        min(width, _FOLDED_MIN) if name in left else width
        for name, width in zip(head, whole, strict=True)
    )
    # Words wrap to the next line where the room ends; names do so if that is not enough.
    for at, name in enumerate(head):
        table.add_column(
            Text(name),
            justify="left" if name in left else "right",
            style="" if at else "cyan",
            no_wrap=not words[at] and (name not in left or sum(widths) <= columns),
            overflow="fold",
        )
    for row in body:
        table.add_row(*(Text(cell, _SEVERITIES.get(cell, "")) for cell in row))
    _echo_drawn(table, soft_wrap=False, least=least)


def write_bars(title: str, rows: Sequence[tuple[str, float, str]]) -> None:
    """A bar for each row, on a terminal; nothing elsewhere, since tables have the numbers.

    Args:
        title: a line before the rows.
        rows: the label, the length of the bar, and the number as text.
    """
    context = click.get_current_context(silent=True)
    longest = max((length for _label, length, _text in rows), default=0)
    if not longest or not wants_color() or (context and context.meta.get(PLAIN)):
        return
    from rich.bar import Bar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1)
    for label, length, text in rows:
        table.add_row(Text(label), Text(text), Bar(longest, 0, length, color="blue"))
    click.echo()
    _echo_drawn(Text(title, "bold"), soft_wrap=False)
    _echo_drawn(table, soft_wrap=False)


def write_rows(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    plain: Callable[..., str],
    *,
    left: Sequence[str],
    below: Sequence[Sequence[str]] = (),
) -> None:
    """Rows as a table on a terminal, otherwise each row as a line of text.

    Args:
        head: the names of the columns.
        rows: a cell for each column.
        plain: makes a line from a row's cells.
        left: the columns whose text begins at the left.
        below: lines about each row, which follow it, or the table.
    """
    if wants_color():
        _draw(head, _cells(rows), left)
        rows = [() for _ in rows]  # the lines below are still to come
    for row, lines in zip_longest(rows, below, fillvalue=()):
        write_lines((*([plain(*row)] if row else ()), *lines))


def write_codes(verb: str, codes: Mapping[str, Any], *, as_json: bool) -> None:
    """Write the list of `--codes`: the fields of each code, or the first two of a tuple's."""
    head = ("code", "severity", "meaning")
    rows: list[dict[str, Any]] = [
        {"code": code, **_code_fields(head[1:], fields)} for code, fields in codes.items()
    ]
    if as_json:
        write_document(f"{verb}-codes/1", {"codes": rows})
    else:
        write_columns(head, rows)


def _code_fields(names: Sequence[str], fields: Any) -> dict[str, Any]:
    """The named fields of a code, from a tuple; all fields of an object."""
    return dict(zip(names, fields, strict=False)) if isinstance(fields, tuple) else asdict(fields)


def _cells(rows: Iterable[Sequence[object]]) -> list[list[str]]:
    """The cells of a table as text."""
    return [[_cell(value) for value in row] for row in rows]


def _cell(value: object) -> str:
    """A value in a table: two digits after the point, "-" for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return printable(str(value))


def counted(count: int, noun: str, many: str = "") -> str:
    """`1 file`, `2 files`, `3 batches`."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def human_bytes(count: int) -> str:
    """`1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_count(count: int | None) -> str | None:
    """`254000`, `2.90 M`, `12.1 G`; None for None."""
    if count is None or count < 1_000_000:
        return None if count is None else str(count)
    size = count / 1_000_000
    return f"{size:.3g} M" if size < 1000 else f"{size / 1000:.3g} G"


def wants_progress() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Bar:
    """A progress bar on standard error, if it is a terminal."""

    __slots__ = ("_rich", "_task")

    def label(self, text: str) -> None:
        """Replace the words before the bar."""
        if self._rich is not None:
            self._rich.update(self._task, description=text)

    def __init__(self, rich: Any = None, task: Any = None) -> None:
        """Keep the bar that rich draws; None to draw no bar."""
        self._rich = rich
        self._task = task

    def by(self, amount: int) -> None:
        """Advance by an amount."""
        if self._rich is not None:
            self._rich.advance(self._task, amount)

    def to(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        if self._rich is not None:
            self._rich.update(self._task, completed=done, total=total)


class MinuteLines(Bar):
    """A line on standard error each minute, if that is not a terminal: task and progress."""

    __slots__ = ("_label", "_started", "_written")

    def __init__(self, label: str) -> None:
        """Start now; the first line comes after a minute."""
        super().__init__()
        self._label = label
        self._started = self._written = time.monotonic()

    def label(self, text: str) -> None:
        """Replace the words of the next line."""
        self._label = text

    def to(self, done: int, total: int) -> None:
        """Write a line if the last one is a minute old."""
        now = time.monotonic()
        if now - self._written < _LINE_SECONDS:
            return
        self._written = now
        rate = done / (now - self._started)
        left = f", {(total - done) / rate:.0f} s left" if rate else ""
        sizes = f"{human_bytes(done)} of {human_bytes(total)}, {human_bytes(int(rate))}/s"
        complain(f"kseg: {self._label}: {sizes}{left}")


@contextmanager
def progress(label: str, total: int, *, in_bytes: bool = False) -> Iterator[Bar]:
    """A bar for the block, which disappears when the block ends.

    Args:
        label: the words before the bar.
        total: the size of the whole task.
        in_bytes: the bar also shows bytes and their rate; if there is no terminal, a line is
            written each minute.
    """
    if not wants_progress():
        yield MinuteLines(label) if in_bytes else Bar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bytes_columns = (DownloadColumn(binary_units=True), TransferSpeedColumn()) if in_bytes else ()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *bytes_columns)
    left = (TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns, *left, console=Console(stderr=True), transient=True) as rich:
        yield Bar(rich, rich.add_task(printable(label), total=total))


#: The most items of one kind that are printed; --json lists more.
ITEMS_MAX: Final = 5


def more_line(count: int, noun: str) -> Iterator[str]:
    """A line with the number of items that are not printed, if there are any."""
    if count > ITEMS_MAX:
        yield f"{count - ITEMS_MAX} more {noun}"


def put_back(replaced: Sequence[tuple[str, Path]], out: Path, beside: Path) -> Iterator[str]:
    """Lines with the steps that put logs from OUT in place of damaged ones, in their order.

    If there are many steps, they are written into a script.

    Args:
        replaced: the name of each log in OUT, and the directory that it replaces.
        out: the new data directory.
        beside: the directory for the script, and for `replaced`, which receives the damaged logs.
    """
    if not replaced:
        return
    from kseg.log.salvage import PUT_BACK  # imported late: few verbs need it

    name, path = replaced[0]
    yield from owner_lines(out / name, path, out)
    yield "to put it back, stop the broker, then:"
    replaced_logs = beside.resolve() / "replaced"
    new_directory = out.resolve()
    moves = [(path.resolve(), new_directory / name) for name, path in replaced]
    if len(moves) > ITEMS_MAX:
        script = beside.resolve() / PUT_BACK
        replace_file(
            script, "".join(f"{line}\n" for line in _script(moves, replaced_logs)).encode()
        )
        yield f"  sh {quote(str(script))}"
    else:
        yield from (f"  {line}" for line in _steps(moves, replaced_logs))
    yield (
        "the lines of the broker's checkpoints may stay, but for a log start past the end of the "
        "log; the checkpoints in OUT are for a broker that gets all of OUT"
    )


def _steps(moves: Sequence[tuple[Path, Path]], aside: Path) -> Iterator[str]:
    """The commands that move each damaged log aside, and the new log into its place."""
    yield f"mkdir -p {quote(str(aside))}"
    for damaged, made in moves:
        yield f"mv {quote(str(damaged))} {quote(str(aside))}/"
        yield f"mv {quote(str(made))} {quote(str(damaged))}"


def _script(moves: Sequence[tuple[Path, Path]], aside: Path) -> Iterator[str]:
    """A script with the steps, which first checks that each directory is where it has to be."""
    yield f"# Puts {len(moves)} logs back. Stop the broker first."
    yield "set -eu"
    yield 'fail() { echo "$1: nothing was moved" >&2; exit 1; }'
    for damaged, made in moves:
        for path in (damaged, made):
            yield f"test -d {quote(str(path))} || fail {quote(f'{path} is missing')}"
        old = aside / damaged.name
        yield f"test ! -e {quote(str(old))} || fail {quote(f'{old} is there already')}"
    yield from _steps(moves, aside)


def without_line(path: Path, partition: TopicPartition) -> str:
    """A command that removes the line of a partition from a checkpoint of offsets.

    The second line of the file is the number of the lines after it.
    """
    entry = f"{partition.topic} {partition.partition} "
    lines = path.read_text().splitlines()[2:]
    count = sum(bool(line.strip()) and not line.startswith(entry) for line in lines)
    topic = partition.topic.replace(".", "[.]")
    script = f"2s/.*/{count}/;/^{topic} {partition.partition} /d"
    return f"sed -i {quote(script)} {quote(str(path))}"


def owner_lines(
    made: StrPath,
    source: StrPath,
    *places: StrPath,
) -> Iterator[str]:
    """Lines with a command for root; empty if owner and group are those of the source.

    The command gives new files to the user who owns the source logs. Root gives them itself; any
    other user cannot, so a broker cannot write to them before root does.

    Args:
        made: one of the new files or directories.
        source: the log or partition directory that it was made from.
        places: files and directories to give away, with their contents.
    """
    status = os.stat(made)
    owner_ids = ownership.owner_of(source)
    if (status.st_uid, status.st_gid) == owner_ids:
        return
    mine = _name(pwd.getpwuid, status.st_uid)
    owner = _name(pwd.getpwuid, owner_ids[0])
    yield f"the new files belong to {mine}, not to {owner}; this, run as root, gives them away:"
    yield command_line("chown", "-R", f"{owner}:{_name(grp.getgrgid, owner_ids[1])}", *places)


def _name(find: Callable[[int], Any], number: int) -> str:
    """The name of a user or a group, or its number where it has no name."""
    try:
        return str(find(number)[0])
    except KeyError:
        return str(number)
