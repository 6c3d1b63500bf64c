"""The classes of values: dataclasses whose fields do not change, and that have no dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_dataclass(made: type | None = None, /, **how: bool) -> Any:
    """Decorate a class; with arguments, give the decorator.

    Args:
        made: the class.
        how: more of `dataclasses.dataclass`.
    """
    return dataclass(made, frozen=True, slots=True, **how)
