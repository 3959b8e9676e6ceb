"""Two reports side by side, before and after an upgrade: what fails now that did not, and what changed below it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvverify.report.completeness import gaps
from kvverify.report.markdown import code

Document = dict[str, Any]
Key = tuple[str, str]
"""Target and probe."""

_SAME_REQUEST = ("dtype", "device")
_SAME_PLAN = ("max_tokens", "seed", "block_size", "max_model_len")


@dataclass
class Comparison:
    """What became of each probe, by target and probe, and what changed in the runtime."""

    newly_failing: list[str] = field(default_factory=list)
    """Fails now and did not before."""
    newly_passing: list[str] = field(default_factory=list)
    """Passes now and did not before."""
    inconclusive: list[str] = field(default_factory=list)
    """Nothing is known now, whatever was before."""
    unchanged: list[str] = field(default_factory=list)
    incomparable: list[str] = field(default_factory=list)
    """In one report only, or asked differently, with the reason."""
    runtime: list[str] = field(default_factory=list)
    """What the two runs ran on, where it differs."""

    @property
    def exit_status(self) -> int:
        """1 where a probe newly fails; else 2 where one can no longer be compared or nothing can; else 0."""
        if self.newly_failing:
            return 1
        compared = self.newly_passing or self.unchanged
        return 0 if compared and not self.incomparable and not self.inconclusive else 2

    @property
    def verdict(self) -> str:
        """The exit status in words."""
        return {
            0: "NO REGRESSION: nothing fails now that did not fail before",
            1: f"REGRESSION: {len(self.newly_failing)} probes fail now that did not fail before",
            2: "NOT COMPARABLE: nothing newly fails, but not everything could be compared",
        }[self.exit_status]

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Title and lines of every part that is not empty."""
        titles = {
            "Newly failing": self.newly_failing,
            "Newly passing": self.newly_passing,
            "Inconclusive now": self.inconclusive,
            "No longer comparable": self.incomparable,
            "Unchanged": self.unchanged,
            "Changed in the runtime": self.runtime,
        }
        yield from ((title, lines) for title, lines in titles.items() if lines)


def compare(before: Document, after: Document) -> Comparison:
    """Compare two sound reports; pure."""
    found = Comparison(runtime=list(_runtime(before, after)))
    reasons = list(_other_questions(before, after))
    verdicts = [_verdicts(before), _verdicts(after)]
    for key in dict.fromkeys([*verdicts[0], *verdicts[1]]):
        name = ", ".join(key)
        here = [*reasons, *_other_probe(key, before, after)]
        if any(key not in one for one in verdicts):
            found.incomparable.append(f"{name}: only in the report {'before' if key in verdicts[0] else 'after'}")
        elif here:
            found.incomparable.append(f"{name}: {here[0]}")
        else:
            _sort_in(found, name, verdicts[0][key], verdicts[1][key])
    return found


def render_comparison(found: Comparison, *, markdown: bool) -> str:
    """The comparison for a person: the verdict first, then each part."""
    lines = [f"## KV reuse, before and after: {found.verdict}" if markdown else found.verdict]
    for title, entries in found.sections():
        lines += ["", f"### {title}" if markdown else title, *([""] if markdown else [])]
        lines += [f"- {code(entry)}" if markdown else f"  - {entry}" for entry in entries]
    return "\n".join(lines)


def _sort_in(found: Comparison, name: str, before: str, after: str) -> None:
    change = f"{name}: {before}, now {after}"
    if after == "inconclusive":
        found.inconclusive.append(change)
    elif before == after:
        found.unchanged.append(f"{name}: {after}")
    elif after == "fail":
        found.newly_failing.append(change)
    else:
        found.newly_passing.append(change)


def _verdicts(document: Document) -> dict[Key, str]:
    """Each probe's verdict; a pass counts only in an arm and a run that are whole, as it does for the exit status."""
    return {
        (target["name"], probe["id"]): "inconclusive" if probe["verdict"] == "pass" and missing else probe["verdict"]
        for target in document["targets"]
        for missing in [gaps(document, target["name"])]
        for probe in target["probes"]
    }


def _other_questions(before: Document, after: Document) -> Iterator[str]:
    """Why no probe of the two can be compared."""
    for part in ("model", "tokenizer"):
        marks = [(one["identity"][part]["files_sha256"], one["identity"][part]["revision"]) for one in (before, after)]
        if marks[0] != marks[1]:
            yield f"another {part}"
        elif marks[0] == (None, None):
            yield f"the {part} is not known"
    for section, names in (("request", _SAME_REQUEST), ("plan", _SAME_PLAN)):
        for name in names:
            if before[section].get(name) != after[section].get(name):
                yield f"another {name} ({before[section].get(name)}, now {after[section].get(name)})"


def _other_probe(key: Key, before: Document, after: Document) -> Iterator[str]:
    probes: list[Document] = [
        next((p for p in one["plan"]["probes"] if p["id"] == key[1]), {}) for one in (before, after)
    ]
    for name, words in (("prompt_sha256", "another prompt"), ("reuse_count", "another reuse count")):
        if probes[0].get(name) != probes[1].get(name):
            yield words


def _runtime(before: Document, after: Document) -> Iterator[str]:
    names = ("packages", "accelerator", "variables", "python")
    for name in names:
        yield from _changes(name, before["environment"][name], after["environment"][name])
    arms = [{arm["name"]: arm["effective"] or {} for arm in one["arms"]} for one in (before, after)]
    for name in arms[0]:
        if name in arms[1]:
            yield from _changes(name, arms[0][name], arms[1][name])


def _changes(place: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from _changes(f"{place}.{name}", before.get(name), after.get(name))
    elif before != after:
        yield f"{place}: {_shown(before)}, now {_shown(after)}"


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
