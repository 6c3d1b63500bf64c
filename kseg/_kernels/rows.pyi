"""The Python interface of the kernel for rows; see `rows.pyx`."""

from typing import Any, Self, final

@final
class Rows:
    def __new__(
        cls,
        kind: type[Any],
        offsets: Any,
        times: Any,
        types: Any,
        type_names: tuple[Any, ...],
        keys: Any,
        values: Any,
        headers: Any,
    ) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def __length_hint__(self) -> int: ...
