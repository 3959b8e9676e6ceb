"""The published schemas of reports, and what in a document does not fit it, in words."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

NAME = "efim.kv-reuse-verification.v1.schema.json"


_LENGTHS = {"minItems": "at least", "minLength": "at least", "maxItems": "at most", "maxLength": "at most"}
_RULES = {
    "type": "must be of type {limit}",
    "enum": "must be {limit}",
    "const": "must be {limit}",
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "pattern": "must match {limit}",
    "uniqueItems": "must hold no entry twice",
}


@cache
def load(name: str = NAME) -> dict[str, Any]:
    """Read a schema that ships with the package."""
    schema: dict[str, Any] = json.loads((files("kvverify") / "schemas" / name).read_text(encoding="utf-8"))
    return schema


def validate(document: object, name: str = NAME) -> list[str]:
    """List, by place, everything in ``document`` that does not fit the schema ``name``; empty where it fits.

    Stricter than JSON Schema in one respect: an integer must be written as one (1.0 is none).
    """
    found = [f"{_place(error.absolute_path)}: {_words(error)}" for error in _validator(name).iter_errors(document)]
    return list(dict.fromkeys(found))


def shown(value: object, most: int = 60) -> str:
    """Give any JSON value on one line of at most ``most`` printable ASCII characters."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= most else f"{text[: most - 3]}..."


@cache
def _validator(name: str) -> Any:
    # Takes a tenth of a second to import, which --help need not wait for.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    plain_items = Draft202012Validator.VALIDATORS["items"]
    limit = load(name)["$defs"].get("token_id", {}).get("maximum", -1)  # a fixture holds no token ids

    def items(validator: Any, schema: Any, instance: Any, parent: Any) -> Iterator[Any]:
        # A report can hold millions of token ids: sound ones pass in one sweep, anything else the long way.
        token_ids = schema == {"$ref": "#/$defs/token_id"} and isinstance(instance, list)
        if not (token_ids and all(type(one) is int and 0 <= one <= limit for one in instance)):
            yield from plain_items(validator, schema, instance, parent)

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    strict = extend(  # type: ignore[no-untyped-call]  # jsonschema's stubs leave it untyped
        Draft202012Validator, {"items": items}, type_checker=checker
    )
    return strict(load(name))


def _place(path: Iterable[str | int]) -> str:
    """Write a path into a document as in ``targets[0].probes[2].verdict``."""
    place = ""
    for step in path:
        if isinstance(step, int):
            place += f"[{step}]"
        else:
            name = step if step.isidentifier() and step.isascii() else shown(step)
            place += f".{name}" if place else name
    return place or "report"


def _words(error: Any) -> str:
    """Say in words what jsonschema found: its own messages quote whole values, which may be the whole report."""
    value, limit = error.instance, error.validator_value
    if error.validator == "required":
        return f"the member {error.message.removesuffix(' is a required property')} is missing"
    if error.validator == "additionalProperties":
        unknown = sorted(set(value) - set(error.schema["properties"]))
        return f"has members that a report does not have: {shown(unknown, 200)}"
    if error.validator == "anyOf":
        return f"is {shown(value)}, and must be: {error.schema['description']}"
    if error.validator in _LENGTHS:
        return f"has length {len(value)} and must have {_LENGTHS[error.validator]} {limit}"
    rule = _RULES.get(error.validator, "must fit the schema's {validator} {limit}")
    choices = limit if isinstance(limit, list) else [limit]
    quoted = " or ".join(choices if error.validator == "type" else map(shown, choices))
    return f"is {shown(value)} and " + rule.format(validator=error.validator, limit=quoted)
