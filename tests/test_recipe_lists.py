"""How recipes are listed, and in which order they run."""

from __future__ import annotations

import pytest

from isthmus.errors import InputError
from isthmus.recipes.parse import read_entries, turns


def test_names_and_options():
    vanilla, bns, other, pipe = read_entries("vanilla, bns  rate=0.2 bits=8,bns rate=0.5; pipegcn")
    assert [vanilla.label, bns.label, other.label, pipe.label] == [
        "vanilla",
        "bns rate=0.2 bits=8",
        "bns rate=0.5",
        "pipegcn",
    ]
    assert (bns.recipe, bns.options["rate"], bns.options["bits"]) == ("bns", 0.2, 8)
    assert bns.folder == "bns-rate=0.2-bits=8"
    assert other.options["bits"] == 32


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no recipe to compare"),
        (" ; ,", "no recipe to compare"),
        ("vanilla, magic", "unknown recipe 'magic'"),
        ("bns rate", "'rate' has no value"),
        ("exact colour=1", "no option 'colour'"),
        ("bns rate=7", "rate"),
        ("bns, vanilla, bns", "'bns' is listed twice"),
    ],
)
def test_refusals(text, word):
    with pytest.raises(InputError, match=word):
        read_entries(text)


def test_everyone_is_first_once():
    entries = read_entries("vanilla, exact, bns")
    order = [(seed, entry.label) for seed, entry in turns(entries, 3)]
    assert len(set(order)) == 9
    assert [label for _, label in order[::3]] == ["vanilla", "exact", "bns"]
    assert [seed for seed, _ in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
