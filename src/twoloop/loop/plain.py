"""Frozen records to plain JSON data and back, so that a durable step can return them and a report can be read again."""

from __future__ import annotations

import math
import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists, floats that JSON cannot hold to None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} is not plain data")


def from_plain(kind: type[T], data: Any) -> T:
    """The inverse of `to_plain` for a dataclass, or a tuple or dict of such. Raises TypeError when the data do not fit.

    A None that stands for a float comes back as NaN. Fields that the data lack take their defaults.
    """
    return cast(T, _build(kind, data))


def _build(kind: Any, data: Any) -> Any:
    if kind is Any:
        return data
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [one for one in arguments if one is not type(None)]
        return None if data is None and len(inner) < len(arguments) else _build(inner[0], data)
    if origin is Literal:
        return _expect(data in arguments, kind, data)
    if origin is tuple:
        items = list(_expect(isinstance(data, list | tuple), kind, data))
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_build(arguments[0], one) for one in items)
        _expect(len(items) == len(arguments), kind, data)
        return tuple(_build(one, item) for one, item in zip(arguments, items, strict=True))
    if origin is dict:
        return {key: _build(arguments[1], one) for key, one in _expect(isinstance(data, dict), kind, data).items()}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        given = _expect(isinstance(data, dict) and set(data) <= set(hints), kind, data)
        return cast(Any, kind)(**{name: _build(hints[name], one) for name, one in given.items()})
    if kind is float:
        if data is None:
            return math.nan
        return float(_expect(isinstance(data, int | float) and not isinstance(data, bool), kind, data))
    return _expect(type(data) is kind, kind, data)


def _expect(fits: bool, kind: Any, data: Any) -> Any:
    if not fits:
        raise TypeError(f"{str(data)[:80]!r} is no {getattr(kind, '__name__', kind)}")
    return data
