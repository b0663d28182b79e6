"""Values of json are checked against the annotations of a dataclass, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pytest

from isthmus.errors import InputError
from isthmus.files import check_types, read_as


class Entry(TypedDict):
    bytes: int


@dataclass(frozen=True)
class Inside:
    name: str = "a"

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise InputError("name must not be bad")


@dataclass(frozen=True)
class Content:
    count: int
    share: float = 0.5
    flag: bool = False
    place: Path = Path(".")
    maybe: int | None = None
    either: int | str = 0
    ranges: tuple[int, ...] = ()
    table: list[list[float]] = field(default_factory=list)
    files: Mapping[str, Entry] = field(default_factory=dict)
    inside: Inside = field(default_factory=Inside)
    rest: dict[str, Any] = field(default_factory=dict)


def test_what_fits():
    given = {
        "count": 3,
        "share": 1,
        "flag": True,
        "place": "x/y",
        "maybe": None,
        "either": "word",
        "ranges": [0, 1],
        "table": [[1, 2.5]],
        "files": {"x": {"bytes": 7, "more": 8}},
        "inside": {"name": "b"},
        "rest": {"a": [1, {"b": None}]},
        "unknown": "left alone",
    }
    found = read_as(Content, given, "file", "mend it")
    assert found == Content(
        3, 1, True, Path("x/y"), None, "word", (0, 1), [[1, 2.5]], {"x": {"bytes": 7}}, Inside("b"), given["rest"]
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "count is not there"),
        ([], "it is a list, not a json object"),
        (None, "it is None, not a json object"),
        ({"count": True}, "count is True, not a whole number"),
        ({"count": 1.0}, "count is 1.0, not a whole number"),
        ({"count": 2**63}, "count is a number that does not fit into 64 bits"),
        ({"count": 1, "share": "1"}, "share is '1', not a number"),
        ({"count": 1, "share": False}, "share is False, not a number"),
        ({"count": 1, "flag": 1}, "flag is 1, not true or false"),
        ({"count": 1, "place": 1}, "place is 1, not text"),
        ({"count": 1, "maybe": "1"}, "maybe is '1', not a whole number"),
        ({"count": 1, "either": None}, "either is None, not text"),
        ({"count": 1, "ranges": [0, "1"]}, r"ranges\[1\] is '1', not a whole number"),
        ({"count": 1, "ranges": "01"}, "ranges is '01', not a list"),
        ({"count": 1, "table": [[1], 2]}, r"table\[1\] is 2, not a list"),
        ({"count": 1, "files": {"x": {}}}, "files.x.bytes is not there"),
        ({"count": 1, "files": {"x": 5}}, "files.x is 5, not a json object"),
        ({"count": 1, "inside": {"name": 1}}, "inside.name is 1, not text"),
        ({"count": 1, "inside": {"name": "bad"}}, "name must not be bad"),
        ({"count": 1, "rest": []}, "rest is a list, not a json object"),
        ({"count": 1, "inside": {"name": "\ud800"}}, "inside.name is text that cannot be written"),
        ({"count": 1, "rest": {"\ud800": 1}}, "rest has a name that cannot be written"),
    ],
)
def test_what_does_not(given, word):
    with pytest.raises(InputError, match=rf"file.*{word}"):
        read_as(Content, given, "file", "mend it")


def test_types_alone():
    check_types(Content, {"inside": {"name": "bad"}}, "file", "mend it")  # neither missing nor senseless is a type
    with pytest.raises(InputError, match=r"file is damaged \(count is 'x', not a whole number\): mend it"):
        check_types(Content, {"count": "x"}, "file", "mend it")


def test_messages_are_one_line_whatever_they_quote():
    with pytest.raises(InputError) as raised:
        read_as(Content, {"count": "a\nb\x1b[31m"}, "fi\nle\x1b", "mend it")
    assert str(raised.value).isprintable()
