"""The signatures of the kernel for Avro; `avro.pyx` describes them."""

from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

NULL_: Final[int]
BOOLEAN: Final[int]
INT: Final[int]
LONG: Final[int]
FLOAT: Final[int]
DOUBLE: Final[int]
BYTES: Final[int]
STRING: Final[int]
FIXED: Final[int]
ENUM: Final[int]
ARRAY: Final[int]
MAP: Final[int]
RECORD: Final[int]
UNION: Final[int]
REFUSE: Final[int]
BRANCH: Final[int]
K_NULL: Final[int]
K_BOOL: Final[int]
K_INT32: Final[int]
K_INT64: Final[int]
K_FLOAT: Final[int]
K_DOUBLE: Final[int]
K_BYTES: Final[int]
K_FIXED: Final[int]
K_LIST: Final[int]
K_MAP: Final[int]
K_STRUCT: Final[int]
K_UNION: Final[int]
K_DECIMAL: Final[int]
UTF8: Final[int]
UUID: Final[int]
SOUND: Final[int]
SHORT: Final[int]
TRAILING: Final[int]
NUMBER: Final[int]
RANGE: Final[int]
TEXT: Final[int]
SYMBOL: Final[int]
CHOICE: Final[int]
REFUSED: Final[int]
LIMIT: Final[int]
NO_MEMORY: Final[int]
NODE_FIELDS: Final[int]
COLUMN_FIELDS: Final[int]

_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_Bytes = bytes | npt.NDArray[np.uint8]

@final
class Memory: ...

@final
class Columns:
    def __new__(
        cls, nodes: _Int32s, kids: _Int32s, codes: _Int32s, columns: _Int64s
    ) -> Columns: ...
    def decode(
        self,
        offsets: _Int64s,
        data: _Bytes,
        wanted: _Bytes,
        faults: dict[int, tuple[int, int, int]],
        prefix: int = 0,
    ) -> None: ...
    def column(self, number: int) -> tuple[int, Any, Any, Any]: ...
