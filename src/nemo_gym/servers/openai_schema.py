"""What all our models of the OpenAI schemas share: a body goes through validate and dump unchanged.

Unknown fields are kept, fields that real servers leave out are optional, and a dump holds exactly
what was given: an absent field stays absent, an explicit null stays null. A field with a default
other than None (`type`, `role`) is dumped too, so that an item made in Python is complete; on the
wire such an item always carries it, because its class is chosen by it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    model_serializer,
)
from pydantic_core import core_schema

__all__ = [
    "FIRST_FITTING",
    "AnyItem",
    "Flag",
    "Lenient",
    "Number",
    "OpenAISchema",
    "UnknownItem",
    "field_of",
    "tag_of",
]

Number = StrictInt | StrictFloat
"""A JSON number as it was written: 1 stays 1, and neither text nor a bool passes for a number."""
Flag = StrictBool


class OpenAISchema(BaseModel):
    """Base of the models; extra fields are kept and readable as attributes."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    @model_serializer(mode="wrap")
    def _what_was_given(self, handler: SerializerFunctionWrapHandler) -> Any:
        dumped = handler(self)
        if isinstance(dumped, dict):
            given = self.model_fields_set
            for name in type(self).model_fields:
                if name not in given and dumped.get(name, ...) is None:
                    del dumped[name]
        return dumped


class UnknownItem(dict[str, Any]):
    """An item of a type that has no model here: a dict whose keys can be read as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        anything = core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
        return core_schema.no_info_after_validator_function(cls, anything)


FIRST_FITTING = Field(union_mode="left_to_right")
"""Marks a union `Model | AnyItem`: the model, or the item as it is where it does not fit."""

T = TypeVar("T")

if TYPE_CHECKING:
    # To a type checker a lenient field has its type, and an item of any kind can be anything.
    AnyItem = Any
    Lenient = Annotated[T, None]
else:
    AnyItem = Annotated[UnknownItem | Any, FIRST_FITTING]
    """An item as it is; an object answers to attributes."""

    Lenient = Annotated[T | Any, FIRST_FITTING]
    """A value of that type where it is one, else the value as it is.

    Real servers send text where the schema has an object and a number where it has a list: what
    matters to nobody must not refuse a body.
    """


def tag_of(*known: str) -> Callable[[object], str]:
    """Return the discriminator of a union of items: their `type` where known, else `any`."""

    def tag(value: object) -> str:
        kind = field_of(value, "type")
        return kind if isinstance(kind, str) and kind in known else "any"

    return tag


def field_of(value: object, name: str) -> object:
    """Return a field of an item, be it a dict or a model; None where it has none."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
