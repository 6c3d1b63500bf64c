"""The columns of `format("kseg")`: Spark's types, Arrow's twins, and what each is decoded from.

The first eight are those of Spark's own Kafka source, under its names and types; the rest are
kseg's, in the same camelCase, and come only where asked for. Spark checks the Arrow type of what a
source yields to the last bit (names, order, nullability, time zone), so a `Projection` is made from
the very schema that Spark passes to `reader`. Nothing here imports pyspark, and pyarrow only where
Arrow's schema is asked for.

Source: Spark `KafkaRecordToRowConverter.schemaWithoutHeaders`, `schemaWithHeaders`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kseg.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType


@dataclass(frozen=True, slots=True)
class Column:
    """One column that the source can give.

    Attributes:
        name: as Spark shows it.
        ddl: its Spark type in DDL.
        fields: the fields of `RecordColumns` that it is made from; none for what the path says.
        nullable: whether a null can occur.
    """

    name: str
    ddl: str
    fields: tuple[str, ...]
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """A column as one query wants it: its spelling, its Spark type, its nullability.

    Attributes:
        column: which one.
        name: as the query spells it.
        type_name: Spark's `simpleString`.
        nullable: as the query declares it.
        item_nullable: for headers, whether an item of the list may be null.
    """

    column: Column
    name: str
    type_name: str
    nullable: bool = True
    item_nullable: bool = True


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of one query, in order."""

    columns: tuple[ProjectedColumn, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The record fields to decode: at least one, since it also counts the rows."""
        names = dict.fromkeys(name for column in self.columns for name in column.column.fields)
        return tuple(names) or ("offset",)


_HEADERS_DDL: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
#: A session may read TIMESTAMP as either of Spark's two; this one does not depend on it.
_TIMESTAMP_DDL: Final = "TIMESTAMP_LTZ"

_KAFKA_COLUMNS: Final = (
    Column("key", "BINARY", ("key",), nullable=True),
    Column("value", "BINARY", ("value",), nullable=True),
    Column("topic", "STRING", (), nullable=True),
    Column("partition", "INT", (), nullable=True),
    Column("offset", "BIGINT", ("offset",)),
    Column("timestamp", _TIMESTAMP_DDL, ("timestamp",), nullable=True),
    Column("timestampType", "INT", ("timestamp_type",)),
)
_HEADERS: Final = Column("headers", _HEADERS_DDL, ("headers",), nullable=True)
_KSEG_COLUMNS: Final = (
    Column("timestampMs", "BIGINT", ("timestamp",)),
    Column("leaderEpoch", "INT", ("leader_epoch",)),
    Column("producerId", "BIGINT", ("producer_id",)),
    Column("producerEpoch", "INT", ("producer_epoch",)),
    Column("sequence", "INT", ("sequence",)),
    Column("baseOffset", "BIGINT", ("base_offset",)),
    Column("position", "BIGINT", ("position",)),
    Column("magic", "INT", ("magic",)),
    Column("codec", "STRING", ("codec",)),
    Column("transactional", "BOOLEAN", ("transactional",)),
    Column("control", "BOOLEAN", ("control",)),
    Column("controlType", "STRING", ("control", "control_type"), nullable=True),
    Column("deleteHorizonMs", "BIGINT", ("delete_horizon_ms",), nullable=True),
    Column("path", "STRING", ()),
)

#: Every column by its lower-case name, in the order in which documentation lists them.
COLUMNS: Final[dict[str, Column]] = {
    column.name.lower(): column for column in (*_KAFKA_COLUMNS, _HEADERS, *_KSEG_COLUMNS)
}

_SIMPLE_NAMES: Final = {
    "BINARY": ("binary",),
    "STRING": ("string",),
    "INT": ("int",),
    "BIGINT": ("bigint",),
    "BOOLEAN": ("boolean",),
    _TIMESTAMP_DDL: ("timestamp", "timestamp_ntz"),
    _HEADERS_DDL: ("array<struct<key:string,value:binary>>",),
}


def ddl(options: SourceOptions) -> str:
    """The schema that the source offers when the query brings none, as Spark DDL.

    Raises:
        ValueError: `columns` names one that does not exist.
    """
    columns: Iterable[Column]
    if options.columns:
        columns = [_column(name) for name in options.columns]
    else:
        columns = (*_KAFKA_COLUMNS, _HEADERS) if options.include_headers else _KAFKA_COLUMNS
    return ", ".join(f"`{column.name}` {column.ddl}" for column in columns)


def project(schema: StructType) -> Projection:
    """Take a query's schema as its projection.

    Args:
        schema: Spark's `StructType`.

    Raises:
        ValueError: a column that does not exist, another type than it has, or NOT NULL where nulls
            occur.
    """
    return Projection(tuple(_projected(field) for field in schema.fields))


def arrow_schema(projection: Projection) -> pa.Schema:
    """The exact Arrow schema that Spark expects of each batch."""
    import pyarrow as pa

    types = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }

    def of(column: ProjectedColumn) -> pa.DataType:
        if column.type_name in types:
            return types[column.type_name]
        item = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return pa.list_(pa.field("element", item, nullable=column.item_nullable))

    return pa.schema(
        [
            pa.field(column.name, of(column), nullable=column.nullable)
            for column in projection.columns
        ]
    )


def _column(name: str) -> Column:
    column = COLUMNS.get(name.lower())
    if column is None:
        close = difflib.get_close_matches(name.lower(), COLUMNS, n=1)
        names = ", ".join(column.name for column in COLUMNS.values())
        hint = f"did you mean {COLUMNS[close[0]].name!r}?" if close else f"known: {names}"
        raise ValueError(f"kseg: unknown column {name!r}; {hint}")
    return column


def _projected(field: StructField) -> ProjectedColumn:
    column = _column(field.name)
    type_name = field.dataType.simpleString()
    if type_name not in _SIMPLE_NAMES[column.ddl]:
        cast = f"; read it so and CAST({column.name} AS {type_name.upper()})"
        raise ValueError(f"kseg: column {field.name!r} is {column.ddl}, not {type_name}{cast}")
    if column.nullable and not field.nullable:
        raise ValueError(f"kseg: column {field.name!r} can be null, so NOT NULL is refused")
    return ProjectedColumn(
        column=column,
        name=field.name,
        type_name=type_name,
        nullable=field.nullable,
        item_nullable=_item_nullable(field.name, field.dataType),
    )


def _item_nullable(name: str, data_type: Any) -> bool:
    """Nullability inside an array of structs, which `simpleString` leaves out."""
    item = getattr(data_type, "elementType", None)
    if item is None:
        return True
    if not all(part.nullable for part in item.fields):
        raise ValueError(f"kseg: fields of {name!r} can be null, so NOT NULL is refused")
    return bool(data_type.containsNull)
