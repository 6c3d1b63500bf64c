"""`Frames` and `Table`: values that Arrow, pandas and Polars take, and that notebooks show."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from kseg.documents import frozen_dataclass
from kseg.extras import require

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_Value = TypeVar("_Value")

#: Rows that a notebook shows of a report; bytes of a value; characters of a `repr`, or a cell.
_ROWS, _VALUE_BYTES, _REPR_CHARACTERS = 200, 60, 500
#: A row of a table to be made: column name -> value; and the rows of a table.
Row: TypeAlias = dict[str, Any]
TableRows: TypeAlias = Sequence[Mapping[str, Any]]
#: The columns of reports that are no whole numbers, by their types.
_NAMES: Final = {
    "string": "topic directory path code severity message advice cause why name value source action"
    " target first relation error subject guid type text context deleted group state protocol_type"
    " protocol status transactional_id holds command topic_id table outcome exception",
    "time": "min_timestamp max_timestamp until timestamp",
    "texts": "codecs references",
    "numbers": "magics",
    "top_keys": "top_keys",
    "double": "compression_ratio",
    "bool": "ok",
}
_KINDS: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def _array(values: list[Any], kind: str | None) -> pyarrow.Array:
    """A column as an Arrow array; if neither `kind` nor a value shows its type, whole numbers."""
    pa = require("pyarrow", extra="arrow")
    if kind is None:
        array = pa.array(values)
        return array.cast(pa.int64()) if pa.types.is_null(array.type) else array
    if kind == "string":
        values = [value if value is None else str(value) for value in values]
    number = pa.int64()
    types = {
        "time": pa.timestamp("us", "UTC"),
        "texts": pa.list_(pa.string()),
        "numbers": pa.list_(number),
        "parts": pa.list_(
            pa.struct({"topic": pa.string(), "partitions": pa.list_(number), "role": pa.string()})
        ),
        "top_keys": pa.list_(
            pa.struct(
                {"key": pa.binary(), "records": number, "bytes": number, "bytes_error": number}
            )
        ),
    }
    return pa.array(values, types.get(kind) or pa.type_for_alias(kind))


class ArrowStream(Protocol):
    """A value of another library that exports a stream of Arrow batches, such as a frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream, in a capsule."""
        ...


def has_arrow(value: object) -> bool:
    """Whether a value exports Arrow's data, as a stream or as one array."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


class Frames:
    """A base class of values with a `to_arrow`: they become frames of pandas and Polars too."""

    __slots__ = ()

    def to_arrow(self) -> Any:
        """The rows in Arrow's form; needs `kseg[arrow]`."""
        raise NotImplementedError

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """The rows as a `pandas.DataFrame`; needs pandas and `kseg[arrow]`.

        Args:
            options: arguments of `pyarrow.Table.to_pandas`.
        """
        require("pandas")
        frame: pandas.DataFrame = self._table_for("pandas").to_pandas(**options)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The rows as a `polars.DataFrame`; needs polars and `kseg[arrow]`."""
        frame: polars.DataFrame = require("polars").DataFrame(self._table_for("Polars"))
        return frame

    def _table_for(self, _engine: str) -> Any:
        """The rows in Arrow's form, of types that an engine has."""
        return self.to_arrow()


class Table(Frames):
    """A base class of reports and plans.

    A subclass has the rows of its table in `table_rows`, and a line about itself in `title`.

    Attributes:
        COLUMNS: the names of columns that a table without rows has, too, with a space between them.
    """

    __slots__ = ()
    COLUMNS: ClassVar[str] = ""

    @property
    def title(self) -> str:
        """The report in one line of text."""
        return f"{len(self.table_rows())} rows"

    def table_rows(self) -> TableRows:
        """The rows: numbers, text, lists or None, keyed by the names of the columns."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """One line; `print` shows more if the report has more to say."""
        line = f"{type(self).__name__}({self.title})"
        return line if len(line) <= _REPR_CHARACTERS else f"{line[: _REPR_CHARACTERS - 4]}...)"

    def _repr_html_(self) -> str:
        """The title and the first rows, for notebooks."""
        from html import escape  # imported late: only notebooks need it

        rows = self.table_rows()
        more = f"{len(rows)} rows" if len(rows) > _ROWS else ""
        return f"<p>{escape(repr(self))}</p>{html_table(rows[:_ROWS], more=more)}"

    def to_arrow(self) -> pyarrow.Table:
        """The rows as a `pyarrow.Table`; needs `kseg[arrow]`."""
        rows = self.table_rows()
        kinds = self.column_kinds()
        names = dict.fromkeys((*kinds, *(name for row in rows for name in row)))
        arrow = require("pyarrow", extra="arrow")
        return arrow.table(
            {
                name: _array([row.get(name) for row in rows], kinds.get(name) or _KINDS.get(name))
                for name in names
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The document of the verb's `--json`; `{"rows": [...]}` if there is no such verb.

        Times of rows are ISO 8601, and bytes are base64.
        """
        return {"rows": _as_json(self.table_rows())}

    def column_kinds(self) -> Mapping[str, str | None]:
        """The columns that a table without rows has, too, with types that are not by their names.

        A type is a name of Arrow, or "texts" for lists of text, "numbers" for lists of numbers,
        "time", "top_keys", or "parts" for partitions that a member has.
        """
        return dict.fromkeys(self.COLUMNS.split())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream."""
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream


@frozen_dataclass(repr=False)
class Listed(Table, Generic[_Value]):
    """A base class of reports that are a list: of a value for each row.

    It is not a tuple: Polars would take the values instead of the rows. Its rows are the attributes
    of the values, if these are named tuples and a subclass has no other rows.

    Attributes:
        values: the list.
    """

    values: tuple[_Value, ...]

    def table_rows(self) -> TableRows:
        """The attributes of each value."""
        return [cast("Any", value)._asdict() for value in self.values]

    def __len__(self) -> int:
        """The number of values."""
        return len(self.values)

    def __iter__(self) -> Iterator[_Value]:
        """The values in order."""
        return iter(self.values)

    def __getitem__(self, index: int) -> _Value:
        """One value.

        Raises:
            IndexError: there is no value at this index.
        """
        return self.values[index]


def html_table(rows: TableRows, *, more: str = "") -> str:
    """Rows as a table of HTML, bytes as text and cut short.

    Args:
        rows: the cells of each row by column.
        more: a line after the table.
    """
    from html import escape  # imported late: only notebooks need it

    names = dict.fromkeys(name for row in rows for name in row)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    last_line = f"<p>{escape(more)}</p>" if more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{last_line}"


def counted(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the lengths of its lists instead of the lists."""
    return {name: len(cell) if isinstance(cell, list) else cell for name, cell in row.items()}


def _as_json(value: Any) -> Any:
    """A cell, or several cells, as JSON values."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case Mapping():
            return {name: _as_json(cell) for name, cell in value.items()}
        case list() | tuple():
            return [_as_json(cell) for cell in value]
    return str(value)


def _cell(value: Any) -> str:
    """A cell of a table of HTML as text, cut short."""
    if isinstance(value, bytes):
        ending = "..." if len(value) > _VALUE_BYTES else ""
        return value[:_VALUE_BYTES].decode("utf-8", "backslashreplace") + ending
    return "" if value is None else str(value)[:_REPR_CHARACTERS]
