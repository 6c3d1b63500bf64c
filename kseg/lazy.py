"""Lazy frames of Polars and datasets of Arrow, over a function that reads pieces of records.

An engine hands over the columns and the filter of a query. A filter is parsed into conditions that
must all hold. A condition that this module does not understand is left out: the reading then gives
more records than the filter accepts. The filter itself is applied to each piece at the end, so
conditions only save reading. Neither library promises a stable form of its filters; a form of a
later release counts as no condition.
"""

from __future__ import annotations

import atexit
import inspect
import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn
from weakref import WeakSet

import pyarrow as pa
import pyarrow.dataset as ds

from kseg.extras import require
from kseg.format.take import first_rows

if TYPE_CHECKING:
    import polars


class Nanoseconds(int):
    """A time, as nanoseconds since 1970 in UTC."""


class Condition(NamedTuple):
    """A comparison of one column with a value, which holds for each record of the answer.

    Attributes:
        column: the name of the column.
        word: "==", "!=", "<", "<=", ">", ">=" or "in".
        value: a number, text, bytes or `Nanoseconds`; for "in" a list of these. Never null.
    """

    column: str
    word: str
    value: Any


#: Gives pieces by conditions, columns in order, the number of rows and the rows of a piece.
Read = Callable[
    [Sequence[Condition], "Sequence[str] | None", "int | None", "int | None"],
    pa.RecordBatchReader,
]

_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Nanoseconds of the units of Arrow, and of Polars.
_UNITS: Final = {
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
    "Milliseconds": 10**6,
    "Microseconds": 10**3,
    "Nanoseconds": 1,
}


#: Earlier releases of Polars lose a filter that they cannot hand to a source, such as one on a time
#: with a zone. With them no filter is handed over, and Polars applies all filters itself.
_KEEPS_FILTERS: Final = (1, 22)

#: Taken for good when the interpreter ends.
_gate: Final = Lock()
#: The readings of frames that are not finished.
_readings: Final = WeakSet["_Reading"]()
#: Seconds that the end of the interpreter waits for threads of Polars.
_END_S: Final = 0.5


class _Reading:
    """One reading of a frame.

    Attributes:
        step: the lock that is held while it makes a piece.
        batches: its pieces.
        is_inside: whether a thread of Polars runs its Python code.
    """

    __slots__ = ("__weakref__", "batches", "is_inside", "step")

    def __init__(self) -> None:
        self.step: Final = Lock()
        self.is_inside = True
        self.batches: Iterator[pa.RecordBatch] = iter(())


@atexit.register
def _end_readings() -> None:
    """Stop the threads of Polars before the interpreter ends.

    Polars reads ahead of a query that has its rows. A thread that enters Python while the
    interpreter ends aborts the process, and so does one that ends within code of Arrow. A thread
    that waits for a lock here does not.
    """
    _gate.acquire()
    for reading in list(_readings):
        reading.step.acquire()
        if isinstance(reading.batches, Generator):
            reading.batches.close()  # ends its threads
        del reading
    end = monotonic() + _END_S
    while any(not reading.is_inside for reading in _readings) and monotonic() < end:
        sleep(0.001)
        sys.modules["polars"].DataFrame()  # Polars releases objects of Python when it is called


def _in_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy in memory of Arrow's own.

    Polars may drop a piece while the interpreter ends, in a thread that Python ends when it asks
    for memory of Python's.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def polars_frame(schema: pa.Schema, read: Read, *, is_pure: bool, about: str) -> polars.LazyFrame:
    """A lazy frame, which reads the pieces that a query needs.

    Args:
        schema: the schema of the records.
        read: returns the pieces.
        is_pure: whether each reading returns the same records.
        about: a line for the frame's `explain`.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    engine = require("polars")

    def pieces(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        """The records of one query, piece by piece, filtered."""
        reading = _Reading()
        with _gate:
            _readings.add(reading)
        with reading.step:
            conditions = () if predicate is None else polars_conditions(predicate)
            reading.batches = iter(read(conditions, with_columns, n_rows, batch_size))
        while True:
            with reading.step:
                batch = next(reading.batches, None)
                if batch is None:
                    return
                frame: polars.DataFrame = engine.DataFrame(_in_arrow(batch))
                del batch
                filtered = frame if predicate is None else frame.filter(predicate)
            reading.is_inside = False
            yield filtered
            reading.is_inside = True

    register = require("polars.io.plugins").register_io_source
    parameters = inspect.signature(register).parameters
    hints = {"is_pure": is_pure, "explain_name": about}
    frame: polars.LazyFrame = register(
        pieces,
        schema=engine.DataFrame(schema.empty_table()).schema,
        **{name: hint for name, hint in hints.items() if name in parameters},
    )
    if tuple(map(int, engine.__version__.split(".")[:2])) < _KEEPS_FILTERS:
        frame = frame.map_batches(lambda whole: whole, predicate_pushdown=False)
    return frame


# ---- Polars' filters -----------------------------------------------------------------------------

_POLARS_WORDS: Final = {
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
_CLOSED: Final = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}


def polars_conditions(predicate: polars.Expr) -> tuple[Condition, ...]:
    """The conditions of a filter of Polars that are understood.

    Args:
        predicate: an expression whose value is true or false.
    """
    engine = require("polars")
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
        return tuple(_polars_conditions(tree))
    except (engine.exceptions.PolarsError, pa.ArrowException, *_STRANGE):
        return ()


#: How a form that this module does not know shows itself.
_STRANGE: Final = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def _polars_conditions(tree: Any) -> Iterator[Condition]:
    """The comparisons in a serialized filter that must all hold; other parts yield nothing.

    A part that is not understood may be left out, since Polars applies the whole filter again.
    """
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if binary := node.get("BinaryExpr"):
            left, right = binary["left"], binary["right"]
            if binary["op"] in ("And", "LogicalAnd"):
                waiting += [right, left]
            elif word := _POLARS_WORDS.get(binary["op"]):
                yield from _condition(_polars_value(left), word, _polars_value(right))
        elif function := node.get("Function"):
            kind, inputs = function["function"].get("Boolean"), function["input"]
            if not isinstance(kind, dict):
                continue
            values = [_polars_value(operand) for operand in inputs]
            if "IsBetween" in kind:
                for word, bound in zip(
                    _CLOSED[kind["IsBetween"]["closed"]], values[1:], strict=True
                ):
                    yield from _condition(values[0], word, bound)
            elif "IsIn" in kind:
                yield from _condition(values[0], "in", values[1])


class _Column(str):
    """The name of a column in a filter."""


def _condition(left: Any, word: str, right: Any) -> Iterator[Condition]:
    """A comparison of a column with a value, in either order; nothing for other arguments."""
    if isinstance(right, _Column):
        left, word, right = right, _FLIPPED.get(word, word), left
    if not isinstance(left, _Column) or isinstance(right, _Column) or right is None:
        return
    if isinstance(right, list) == (word == "in") and not (word == "in" and None in right):
        yield Condition(str(left), word, right)


def _polars_value(node: Any) -> Any:
    """A column or a value in a filter of Polars; None for anything else, and for null."""
    if "Column" in node:
        return _Column(node["Column"])
    literal = node.get("Literal")
    if not isinstance(literal, dict):
        return None
    if "Series" in literal:
        return _literal_list(literal["Series"])
    scalar = literal.get("Scalar") or literal.get("Dyn") or literal  # depends on the release
    if not isinstance(scalar, dict):
        return None
    ((kind, value),) = scalar.items()
    if kind == "List":
        return _literal_list(value)
    if kind in ("Datetime", "DateTime"):
        number, unit, zone = value
        return None if zone is None else Nanoseconds(number * _UNITS[unit])
    if kind == "Binary":
        return bytes(value)
    return value if kind.startswith(("String", "Int", "UInt")) else None


def _literal_list(byte_values: list[int]) -> list[Any]:
    """The values of a literal list: a serialized expression of Polars has it as an Arrow stream."""
    with pa.ipc.open_stream(bytes(byte_values)) as stream:
        column = stream.read_all().column(0)
        if (
            pa.types.is_large_list(column.type) and len(column) == 1
        ):  # from SQL it is nested once more
            column = column[0].values
        return [_arrow_value(scalar) for scalar in column]


# ---- Arrow's filters -----------------------------------------------------------------------------

_ARROW_WORDS: Final = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


def arrow_conditions(filter: ds.Expression) -> tuple[Condition, ...]:
    """The conditions of an Arrow filter that are understood; all of it is applied again later.

    Args:
        filter: an expression over columns.
    """
    try:
        return tuple(_arrow_conditions(_arrow_tree(filter)))
    except (pa.ArrowException, *_STRANGE):
        return ()


def _arrow_tree(filter: ds.Expression) -> Any:
    """The calls of a filter as tuples of a name and arguments.

    A pickled expression is an Arrow file with one row of literals. The metadata of its schema is
    the expression, each call between "call" and "end".
    """
    stored = filter.__reduce__()[1][0]
    row = pa.ipc.open_file(stored).get_batch(0)
    text = row.schema.to_string(show_schema_metadata=True, truncate_metadata=False)
    _types, _mark, steps = text.partition("-- schema metadata --\n")
    open_calls: list[tuple[str, list[Any]]] = [("", [])]
    for step, name in re.findall(r"^(\w+): '(.*)'$", steps, re.MULTILINE):
        arguments = open_calls[-1][1]
        if step == "call":
            open_calls.append((name, []))
        elif step == "end":
            done = open_calls.pop()
            open_calls[-1][1].append(done)
        elif step == "field_ref":
            arguments.append(_Column(name))
        elif step == "literal":
            arguments.append(_arrow_value(row.column(int(name))[0]))
        elif step == "options":
            arguments.append(row.column(int(name))[0])
        else:
            raise ValueError(step)
    ((_root, (tree,)),) = open_calls
    return tree


def _arrow_conditions(tree: Any) -> Iterator[Condition]:
    """The comparisons that must all hold, from `_arrow_tree`; see `_polars_conditions`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, tuple):
            continue
        name, arguments = node
        if name in ("and", "and_kleene"):
            waiting += arguments[1::-1]
        elif name == "if_else" and arguments[2] is None:
            waiting += arguments[1::-1]  # true where both are
        elif name == "is_in":
            column, options = arguments
            values = [_arrow_value(scalar) for scalar in options["value_set"].values]
            yield from _condition(column, "in", values)
        elif name in _ARROW_WORDS:
            yield from _condition(arguments[0], _ARROW_WORDS[name], arguments[1])


def _arrow_value(scalar: pa.Scalar) -> Any:
    """The value of a scalar; None for null, and for a type that conditions cannot have."""
    kind = scalar.type
    if pa.types.is_timestamp(kind):
        has_zone = scalar.is_valid and kind.tz is not None
        return Nanoseconds(scalar.value * _UNITS[kind.unit]) if has_zone else None
    value = scalar.as_py()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return value
    return value if type(value) in (int, str, bytes) else None


# ---- datasets ------------------------------------------------------------------------------------


def _columns_named_in(names: Iterable[str], text: str) -> list[str]:
    """The columns that expressions may use, by their text."""
    if "FieldPath(" in text or "FieldRef" in text:
        return list(names)
    return [name for name in names if re.search(rf"\b{name}\b", text)]


class ScanDataset(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """Records as a `pyarrow.dataset.Dataset`, which DuckDB and Polars query.

    Columns and filters of a query are handed to the reading. Each query reads again.
    """

    def __init__(
        self, schema: pa.Schema, read: Read, about: str, pushed: Callable[[], object]
    ) -> None:
        """A dataset.

        Args:
            schema: the schema of the records.
            read: returns the pieces.
            about: the text of its `repr`.
            pushed: returns the scan that the latest query read.
        """
        super().__init__(schema.empty_table())
        self._read, self._about, self._pushed = read, about, pushed

    def __repr__(self) -> str:
        """The text of the scan that it reads."""
        return f"Dataset({self._about})"

    @property
    def pushed(self) -> object:
        """The scan that the latest query read, see `kseg.Scan.pushed`; None before the first."""
        return self._pushed()

    def scanner(
        self,
        columns: Sequence[str] | dict[str, ds.Expression] | None = None,
        filter: ds.Expression | None = None,
        batch_size: int | None = None,
        **_hints: Any,
    ) -> Any:
        """A scanner of some columns of the records that a filter selects.

        Args:
            columns: names, or name -> expression; None for all columns.
            filter: selects the rows for which it is true.
            batch_size: the most rows of a batch.
            _hints: how other datasets read ahead.

        Raises:
            KeyError: the column does not exist.
        """
        if isinstance(columns, dict):
            used = _columns_named_in(self.schema.names, f"{[*map(str, columns.values())]} {filter}")
            pieces = PieceScanner(self, used, filter, batch_size).to_reader()
            return ds.Scanner.from_batches(pieces, columns=columns)
        return PieceScanner(self, columns, filter, batch_size)

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Refuse an operation that would find the dataset empty."""
        raise TypeError("a dataset of kseg has no such operation; scanner(filter=) takes filters")

    filter = get_fragments = join = join_asof = replace_schema = sort_by = __reduce__ = _refuse


class PieceScanner:
    """A scanner of `ScanDataset`: it reads one piece after another, and no piece ahead.

    Attributes:
        dataset_schema: the schema of all columns.
        projected_schema: the schema of the columns that it returns.
    """

    def __init__(
        self,
        dataset: ScanDataset,
        columns: Sequence[str] | None,
        filter: ds.Expression | None,
        batch_size: int | None,
    ) -> None:
        """A scanner; see `ScanDataset.scanner`."""
        self.dataset_schema: pa.Schema = dataset.schema
        names = self.dataset_schema.names if columns is None else list(columns)
        self.projected_schema = pa.schema([self.dataset_schema.field(name) for name in names])
        self._read, self._filter, self._batch_size = dataset._read, filter, batch_size

    def to_batches(self, limit: int | None = None) -> Generator[Any]:
        """The records as record batches.

        Args:
            limit: the number of records to read; None for all.
        """
        names = self.projected_schema.names
        used, conditions = names, tuple[Condition, ...]()
        if self._filter is not None:
            used = [*names, *_columns_named_in(self.dataset_schema.names, str(self._filter))]
            conditions = arrow_conditions(self._filter)
        # A batch without a column has no rows for a filter; the first column costs least.
        used = list(dict.fromkeys(used)) or self.dataset_schema.names[:1]
        for batch in self._read(conditions, used, limit, self._batch_size):
            rows = batch if self._filter is None else batch.filter(self._filter)
            if rows.num_rows:
                yield rows.select(names)

    def to_reader(self) -> pa.RecordBatchReader:
        """The records as a reader of record batches."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """The records as a table."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first records.

        Args:
            num_rows: the number of records.
        """
        read = self.to_batches(num_rows if self._filter is None else None)
        return pa.Table.from_batches(list(first_rows(read, num_rows)), self.projected_schema)

    def count_rows(self) -> int:
        """The number of records."""
        return sum(batch.num_rows for batch in self.to_batches())
