"""Check the values of a json file against the annotations of a dataclass: one checker for every file that we read.

The content of a file is described once, by the dataclass that it becomes. A value of another type is refused by the
name of its field, so that later code never meets a list where it expects a number.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from isthmus.errors import InputError

T = TypeVar("T")
WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null", Path: "text"}
MOST = 2**63  # larger numbers are no counts and do not fit a 64-bit integer


class _Wrong(Exception):
    """An error that names the field whose value has the wrong type."""

    def __init__(self, where: str, how: str):
        super().__init__(f"{where or 'it'} {how}")


def read_as(kind: type[T], content: Any, where: str, remedy: str) -> T:
    """Make a dataclass of the content of a file; ignore fields that it does not name.

    Args:
        kind: the dataclass. Fields without a default must be present.
        content: the parsed json.
        where: the file, for the message.
        remedy: what to do about a damaged file, for the message.
    """
    try:
        return _conform(content, kind, "", True)
    except _Wrong as error:
        raise InputError(f"{where} is damaged ({error}): {remedy}") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def check_types(kind: type, content: Any, where: str, remedy: str) -> None:
    """Refuse values of another type than the dataclass says; missing fields and senseless values are not checked."""
    try:
        _conform(content, kind, "", False)
    except _Wrong as error:
        raise InputError(f"{where} is damaged ({error}): {remedy}") from None


def _conform(value: Any, kind: Any, name: str, make: bool) -> Any:
    """Return the value as an instance of an annotation; with ``make``, also make dataclasses."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(value, arguments, name, make)
    if is_dataclass(kind):
        return _dataclass(value, kind, name, make)
    if is_typeddict(kind):
        there = {
            f: hint for f, hint in _hints(kind).items() if f in kind.__required_keys__ or _is_there(value, f, name)
        }
        return {f: _conform(_item(value, f, name), hint, _path(name, f), make) for f, hint in there.items()}
    if kind is dict or origin in (dict, Mapping):
        return _mapping(value, arguments[1] if arguments else Any, name, make)
    if kind in (list, tuple) or origin in (list, tuple, Sequence):
        return _sequence(value, origin or kind, arguments[0] if arguments else Any, name, make)
    return _plain(value, kind, name, make)


def _plain(value: Any, kind: type, name: str, make: bool) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = number if kind is float else isinstance(value, str) if kind is Path else isinstance(value, kind)
    if not fits or (kind is int and isinstance(value, bool)):
        raise _Wrong(name, f"is {_shown(value)}, not {WORDS.get(kind, kind.__name__)}")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= MOST:
        raise _Wrong(name, "is a number that does not fit into 64 bits")
    if make and isinstance(value, str) and not _is_unicode(value):
        raise _Wrong(name, "is text that cannot be written")
    return Path(value) if kind is Path else value


def _one_of(value: Any, kinds: Sequence[Any], name: str, make: bool) -> Any:
    wrong = None
    for kind in kinds:
        try:
            return _conform(value, kind, name, make)
        except _Wrong as error:
            wrong = wrong if wrong is not None and kind is type(None) else error
    assert wrong is not None
    raise wrong


def _dataclass(value: Any, kind: Any, name: str, make: bool) -> Any:
    hints, given = _hints(kind), {}
    for field in fields(kind):
        if field.init and (_is_there(value, field.name, name) or (make and _is_needed(field))):
            item = _item(value, field.name, name)
            given[field.name] = _conform(item, hints[field.name], _path(name, field.name), make)
    return kind(**given) if make else given


def _mapping(value: Any, kind: Any, name: str, make: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(name, f"is {_shown(value)}, not a json object")
    if make and not all(map(_is_unicode, value)):
        raise _Wrong(name, "has a name that cannot be written")
    return {key: _conform(one, kind, _path(name, key), make) for key, one in value.items()}


def _sequence(value: Any, made: Any, kind: Any, name: str, make: bool) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _Wrong(name, f"is {_shown(value)}, not a list")
    items = [_conform(one, kind, f"{name}[{place}]", make) for place, one in enumerate(value)]
    return tuple(items) if made is tuple else items


def _is_needed(field: Field) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _is_there(value: Any, field: str, name: str) -> bool:
    if not isinstance(value, dict):
        raise _Wrong(name, f"is {_shown(value)}, not a json object")
    return field in value


def _item(value: Any, field: str, name: str) -> Any:
    if not _is_there(value, field, name):
        raise _Wrong(_path(name, field), "is not there")
    return value[field]


def _is_unicode(text: str) -> bool:
    """Return whether text can be written to a file or a terminal: json may hold unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path(name: str, field: str) -> str:
    return f"{name}.{field[:60]}" if name else field[:60]


def _shown(value: Any) -> str:
    """Return a value as a message quotes it, in a few words."""
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}…"
    return "a list" if isinstance(value, list) else "a json object"


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
