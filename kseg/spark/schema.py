"""The columns of `format("kseg")`: Spark's types, Arrow's types, and the fields of each.

Each mode has columns of its own. The first eight columns of records have the names and types of
Spark's own Kafka source. The rest are kseg's, in the same camelCase, and a query gets them only if
it asks for them. Spark checks the Arrow type of each batch exactly (names, order, nullability, time
zone). So a `Projection` is made from the schema that Spark passes to `reader`. Nothing here imports
pyspark; only `project` imports pyarrow.

Source: Spark `KafkaRecordToRowConverter.schemaWithoutHeaders`, `schemaWithHeaders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kseg.commands import suggestion
from kseg.documents import frozen_dataclass
from kseg.format.values import Kind
from kseg.spark.options import SourceOptions, field_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType


@frozen_dataclass
class Column:
    """One column that the source can give.

    Attributes:
        name: as Spark shows it.
        ddl: its Spark type in DDL.
        nullable: whether a null can occur.
    """

    name: str
    ddl: str
    nullable: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records that it is made from; none if it comes from the path."""
        return _FIELDS.get(self.name, (field_of(self.name),))


#: The fields of columns of records that have other names than these columns.
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "topic": (),
    "partition": (),
    "path": (),
    "corrupt": (),
    "timestampMs": ("timestamp",),
    "controlType": ("control", "control_type"),
    "keyError": ("key",),
    "valueError": ("value",),
}


@frozen_dataclass
class Projection:
    """The columns of one query, in order.

    Attributes:
        columns: the columns of the source.
        schema: the exact Arrow schema that Spark expects of each batch, in the query's spelling.
    """

    columns: tuple[Column, ...]
    schema: pa.Schema

    @property
    def fields(self) -> tuple[str, ...]:
        """The record fields to decode: at least one, since it also counts the rows."""
        names = dict.fromkeys(name for column in self.columns for name in column.fields)
        return tuple(names) or ("offset",)


_HEADERS_DDL: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
#: A session setting decides which of Spark's two types TIMESTAMP is; this name is always one.
_TIMESTAMP_DDL: Final = "TIMESTAMP_LTZ"
#: The columns that a query gets if it names none.
_DEFAULT: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def _parse_columns(lines: str) -> dict[str, Column]:
    """The columns of a table by their lower-case names: a line each, name and type, NULL or not."""
    columns = {}
    for line in lines.split("\n"):
        name, _, kind = line.partition(" ")
        columns[name.lower()] = Column(name, kind.removesuffix(" NULL"), kind.endswith(" NULL"))
    return columns


#: Every column of records by its lower-case name, in the order in which documentation lists them.
#: The last three say why a key or value is null that was to be decoded, and the faults of a place
#: in the log, in the rows that `onCorrupt=permissive` adds.
COLUMNS: Final = _parse_columns(f"""\
key BINARY NULL
value BINARY NULL
topic STRING NULL
partition INT NULL
offset BIGINT
timestamp {_TIMESTAMP_DDL} NULL
timestampType INT
headers {_HEADERS_DDL} NULL
timestampMs BIGINT
leaderEpoch INT
producerId BIGINT
producerEpoch INT
sequence INT
baseOffset BIGINT
position BIGINT
magic INT
codec STRING
transactional BOOLEAN
control BOOLEAN
controlType STRING NULL
deleteHorizonMs BIGINT NULL
path STRING
keyError STRING NULL
valueError STRING NULL
corrupt STRING NULL""")
#: The columns of a row for each record batch, with the names of `kseg dump --batches`.
_BATCH_COLUMNS: Final = _parse_columns("""\
topic STRING NULL
partition INT NULL
path STRING
position BIGINT
size INT
baseOffset BIGINT NULL
lastOffset BIGINT
count INT NULL
baseSequence INT
lastSequence INT
producerId BIGINT
producerEpoch INT
leaderEpoch INT
transactional BOOLEAN
control BOOLEAN
deleteHorizonMs BIGINT NULL
baseTimestamp BIGINT
maxTimestamp BIGINT
timestampType INT
magic INT
codec STRING
crc BIGINT
crcOk BOOLEAN NULL""")
#: The columns of a row for each log file, with the names of `kseg info --segments`.
_SEGMENT_COLUMNS: Final = _parse_columns("""\
topic STRING NULL
partition INT NULL
path STRING
baseOffset BIGINT NULL
bytes BIGINT
batches BIGINT
records BIGINT NULL
firstOffset BIGINT NULL
lastOffset BIGINT NULL
minTimestamp BIGINT NULL
maxTimestamp BIGINT NULL
codecs ARRAY<STRING>
magics ARRAY<INT>
endPosition BIGINT
stop STRING""")
#: The columns of each mode.
MODES: Final = {"records": COLUMNS, "batches": _BATCH_COLUMNS, "segments": _SEGMENT_COLUMNS}

#: Spark's types of decoded keys and values.
_KIND_DDL: Final = {
    Kind.TEXT: "STRING",
    Kind.JSON: "STRING",
    Kind.INT16: "SMALLINT",
    Kind.INT32: "INT",
    Kind.INT64: "BIGINT",
    Kind.FLOAT: "FLOAT",
    Kind.DOUBLE: "DOUBLE",
    Kind.UUID: "STRING",
}
_SIMPLE_NAMES: Final = {
    "BINARY": ("binary",),
    "STRING": ("string",),
    "SMALLINT": ("smallint",),
    "INT": ("int",),
    "BIGINT": ("bigint",),
    "FLOAT": ("float",),
    "DOUBLE": ("double",),
    "BOOLEAN": ("boolean",),
    _TIMESTAMP_DDL: ("timestamp", "timestamp_ntz"),
    _HEADERS_DDL: ("array<struct<key:string,value:binary>>",),
    "ARRAY<STRING>": ("array<string>",),
    "ARRAY<INT>": ("array<int>",),
}


def ddl(options: SourceOptions, comment: str | None = None) -> str:
    """The schema of the source for a query that has none, as Spark DDL.

    Args:
        options: the options, which decide the columns.
        comment: a comment on the first column; None for no comment.

    Raises:
        ValueError: `columns` has a name of no column.
    """
    first, *more = [f"`{column.name}` {column.ddl}" for column in _columns_of_options(options)]
    return ", ".join([first if comment is None else f"{first} COMMENT '{comment}'", *more])


def _columns_of_options(options: SourceOptions) -> Iterable[Column]:
    """The columns that the options ask for, in order."""
    columns = _columns_of(options)
    if options.columns:
        return [_column(name, columns) for name in options.columns]
    if options.mode != "records":
        return columns.values()
    names = [*_DEFAULT, *(("headers",) if options.include_headers else ())]
    names += [f"{name}Error" for name in options.kinds]
    names += ["corrupt"] if options.permissive else []
    return [columns[name.lower()] for name in names]


def _columns_of(options: SourceOptions | None) -> dict[str, Column]:
    """Name in lower case -> a column of the mode; decoded columns have the types of their kinds."""
    if options is None:
        return COLUMNS
    columns = MODES[options.mode]
    typed = {
        name: replace(columns[name], ddl=_ddl_of(kind)) for name, kind in options.kinds.items()
    }
    return {**columns, **typed}


def _ddl_of(kind: Any) -> str:
    """Spark's type of decoded keys or values."""
    if isinstance(kind, Kind):
        return _KIND_DDL[kind]
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    from kseg.arrow import check_types

    try:
        check_types({"value": kind}, "Spark")
        return str(from_arrow_type(kind.type).simpleString())
    except PySparkException as error:
        reason = f"kseg: {kind.type} has no type in Spark; decode as registry-json ({error})"
        raise ValueError(reason) from None


def project(schema: StructType, options: SourceOptions | None = None) -> Projection:
    """The projection of a query, from its schema.

    Args:
        schema: Spark's `StructType`.
        options: say the mode, and whether damage has rows; records without such rows if None.

    Raises:
        ValueError: a column that does not exist, another type than it has, or NOT NULL where nulls
            occur.
    """
    import pyarrow as pa

    offered = _columns_of(options)
    columns = tuple(_column(field.name, offered) for field in schema.fields)
    permissive = options is not None and options.permissive
    fields = []
    for field, column in zip(schema.fields, columns, strict=True):
        type_name = field.dataType.simpleString()
        if type_name not in _SIMPLE_NAMES.get(column.ddl, (column.ddl,)):
            cast = f"; read it so and CAST({column.name} AS {type_name.upper()})"
            raise ValueError(f"kseg: column {field.name!r} is {column.ddl}, not {type_name}{cast}")
        if (column.nullable or permissive) and not field.nullable:
            raise ValueError(f"kseg: column {field.name!r} can be null, so NOT NULL is refused")
        fields.append(pa.field(field.name, _arrow_type(field), nullable=field.nullable))
    return Projection(columns, pa.schema(fields))


def _arrow_type(field: StructField) -> pa.DataType:
    """The Arrow type of the rows' column for a field of Spark's schema."""
    import pyarrow as pa

    types = {
        "binary": pa.binary(),
        "string": pa.string(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "struct<key:string,value:binary>": pa.struct(
            [("key", pa.string()), ("value", pa.binary())]
        ),
    }
    name = field.dataType.simpleString()
    if name in types:
        return types[name]
    if name.removeprefix("array<").removesuffix(">") not in types:
        from pyspark.sql.pandas.types import to_arrow_type

        return to_arrow_type(field.dataType, timezone="UTC")
    item = types[name.removeprefix("array<").removesuffix(">")]
    nullable = _item_nullable(field.name, field.dataType)
    return pa.list_(pa.field("element", item, nullable=nullable))


def _column(name: str, columns: Mapping[str, Column]) -> Column:
    """The column with a name, whatever its upper and lower case."""
    column = columns.get(name.lower())
    if column is None:
        names = [column.name for column in columns.values()]
        hint = suggestion([name], names, f"known: {', '.join(names)}")
        raise ValueError(f"kseg: unknown column {name!r}{hint}")
    return column


def _item_nullable(name: str, array: Any) -> bool:
    """Whether an array may hold nulls, which `simpleString` does not say."""
    if not all(part.nullable for part in getattr(array.elementType, "fields", ())):
        raise ValueError(f"kseg: fields of {name!r} can be null, so NOT NULL is refused")
    return bool(array.containsNull)
