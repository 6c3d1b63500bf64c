"""Records as Parquet files, in the form that readers of columns want; needs pyarrow.

Row groups are bounded by rows and bytes, and dictionaries stand only where they help. Numbers are
stored as differences, since offsets and times ascend: next to nothing is left of them for a codec
to go through. Values and headers have no statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kseg.arrow import schema, to_record_batch
from kseg.extras import require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import pyarrow as pa

    from kseg.format.typed import Kinds
    from kseg.format.values import RecordColumns

#: Rows and bytes of a row group: it is complete when it has as many of either. The pieces that wait
#: for it hold several times these bytes.
GROUP_ROWS: Final = 256 << 10
GROUP_BYTES: Final = 4 << 20
#: Columns of few different values.
_WORDS: Final = (
    "topic",
    "timestamp_type",
    "codec",
    "control_type",
    "key_error",
    "value_error",
)
#: Rows in which keys must repeat for a dictionary of them to be made.
_KEYS_LOOKED_AT: Final = 32 << 10


def parquet_writer(
    sink: Any,
    fields: tuple[str, ...],
    first: pa.Table | None,
    *,
    compression: str,
    kinds: Kinds | None = None,
    metadata: Mapping[bytes, bytes] | None = None,
) -> Any:
    """A `pyarrow.parquet.ParquetWriter` for record columns.

    Args:
        sink: a path, or a file to write to.
        fields: names of `kseg.arrow`, in order.
        kinds: the kinds of decoded fields.
        first: the first row group, which shows whether keys repeat; None if there are no rows.
        compression: as pyarrow names it.
        metadata: further metadata of the schema.
    """
    pyarrow: Any = require("pyarrow", extra="arrow")
    parquet: Any = require("pyarrow.parquet", extra="arrow")
    columns, is_a = schema(fields, kinds), pyarrow.types
    numbers = [
        column.name
        for column in columns
        if (is_a.is_integer(column.type) or is_a.is_timestamp(column.type)) and column.name != "key"
    ]
    words = [name for name in fields if name in _WORDS]
    return parquet.ParquetWriter(
        sink,
        columns.with_metadata(metadata),
        compression=compression,
        use_dictionary=[*words, *(["key"] if _keys_repeat(first) else [])],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in fields if name not in ("value", "headers")],
    )


def _keys_repeat(table: pa.Table | None) -> bool:
    """Whether a key occurs four times on the average, so that a dictionary of keys pays."""
    if table is None or "key" not in table.schema.names or not table.num_rows:
        return False
    compute: Any = require("pyarrow.compute", extra="arrow")
    keys = table["key"].slice(0, _KEYS_LOOKED_AT)
    different: int = compute.count_distinct(keys).as_py()
    return 4 * different <= len(keys)


class ParquetFile:
    """A Parquet file of record columns, written row group by row group."""

    def __init__(
        self,
        sink: Any,
        fields: tuple[str, ...],
        kinds: Kinds | None = None,
        metadata: Mapping[bytes, bytes] | None = None,
        *,
        compression: str = "zstd",
    ) -> None:
        """Begin the file; nothing is written yet.

        Args:
            sink: a file open for writing bytes, as pyarrow takes it.
            fields: names of columns, in order; each piece has all of them.
            kinds: the kinds of decoded fields, keyed by name.
            metadata: further metadata of the schema.
            compression: as pyarrow names it.
        """
        self._sink = sink
        self._compression = compression
        self._metadata = metadata
        self._fields = fields
        self._kinds = kinds
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> ParquetFile:
        """Open the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Write pending rows, and the end of the file; after an error only release it."""
        if kind is None and (self._waiting or self._writer is None):
            self._write_group()
        if self._writer is not None:
            self._writer.close()

    def write(self, columns: RecordColumns) -> None:
        """Add a piece; a row group is written once it is large enough.

        Args:
            columns: records with all fields of the file.

        Raises:
            MissingFieldError: a field is not in the piece.
            OSError: the sink refuses.
        """
        batch = to_record_batch(columns, fields=self._fields)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        """Write the pending pieces as a row group; the first group decides how keys are stored."""
        pyarrow: Any = require("pyarrow", extra="arrow")
        group = pyarrow.Table.from_batches(self._waiting, schema(self._fields, self._kinds))
        if self._writer is None:
            self._writer = parquet_writer(
                self._sink,
                self._fields,
                group,
                compression=self._compression,
                kinds=self._kinds,
                metadata=self._metadata,
            )
        if group.num_rows:
            self._writer.write_table(group, row_group_size=group.num_rows)
        self._waiting.clear()
        self._rows = self._bytes = 0
