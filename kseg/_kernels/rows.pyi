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

@final
class Dicts:
    def __new__(
        cls, place: dict[str, Any], names: tuple[str, ...], columns: list[Any], count: int
    ) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> dict[str, Any]: ...
    def __length_hint__(self) -> int: ...
