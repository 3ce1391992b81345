"""Records that slices add to the answers of the core. What they are is known where the slice is there.

Without it, such a record in a saved run is read as `Unknown`: the run can be shown, and saved again as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from strobe.core import slices
from strobe.core.results.data import Data


class Unknown(Data):
    """A record of a slice that is not there: its fields as they were saved."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class Recorded:
    """Annotates a field with a slice's record: ``wiring: Annotated[Any, Recorded("wiring")] = None``.

    Args:
        name: of the record in the slice's `Slice.records`.
        many: whether the field is a list of them; else it is one, or None.
    """

    name: str
    many: bool = False

    def read(self, value: Any) -> Any:
        """Return the record of what was saved, or the list of them. Raises ValueError for anything else."""
        if not self.many:
            return self._one(value)
        if not isinstance(value, list):
            raise ValueError("a list of records is needed")
        return [self._one(each) for each in value]

    def _one(self, value: Any) -> Any:
        if value is None or isinstance(value, Data):
            return value
        return (slices.record_class(self.name) or Unknown).model_validate(value)

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(Any))

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        one = handler((slices.record_class(self.name) or Unknown).__pydantic_core_schema__)
        return {"type": "array", "items": one} if self.many else {"anyOf": [one, {"type": "null"}]}
