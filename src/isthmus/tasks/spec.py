"""Options in one word of the command line: ``name,option=value,…``, as --loss, --optimizer and --scheduler take it."""

from __future__ import annotations

from typing import Any, NamedTuple

from isthmus.errors import InputError


class Spec(NamedTuple):
    """A name, and options as they were written, numbers and truth values read."""

    name: str
    options: dict[str, Any]

    @staticmethod
    def read(text: str, what: str) -> Spec:
        name, *rest = text.split(",")
        options = {}
        for entry in rest:
            key, equals, value = entry.partition("=")
            if not (key and equals):
                raise InputError(f"--{what} {text} has {entry!r}: write options as {name},option=value")
            options[key] = _value(value)
        return Spec(name, options)

    def take(self, what: str, known: dict[str, Any]) -> dict[str, Any]:
        """Return the options with their defaults; refuse unknown ones and those of another type than the default's."""
        for key, value in self.options.items():
            if key not in known:
                raise InputError(f"--{what} {self.name} has no option {key!r}: it knows {', '.join(known) or 'none'}")
            if isinstance(known[key], float | int) and not isinstance(value, float | int):
                raise InputError(f"--{what} {self.name},{key}={value}: give a number")
        return {**known, **self.options}


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
