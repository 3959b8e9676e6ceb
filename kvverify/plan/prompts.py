"""Prompts of an exact number of tokens, raw and chat, made of a probe's ledger and a task that reads it."""

from collections.abc import Callable
from functools import partial

from kvverify.errors import PreflightError
from kvverify.plan.fit import Render, fit
from kvverify.plan.ledger import READ, SHOWN, Ledger, draw_ledger
from kvverify.plan.suites import DEFAULT_SPAN, ProbeSpec
from kvverify.plan.tokenizer import Message, TemplateRefusedError, Tokenizer

FAR = 1 << 30
"""More tokens than any prompt has."""

Opening = Callable[[str, str], list[Message]]
"""First messages of a chat from the probe's tag and the text that follows it."""


class PromptWriter:
    """Writes the prompts of one plan with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, seed: int, span: int = DEFAULT_SPAN) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._span = span
        self._opening: Opening | None = None

    def write(self, spec: ProbeSpec, draw: int = 0) -> tuple[int, ...]:
        """Return the ids of a prompt of exactly ``spec.prompt_tokens`` tokens.

        ``draw`` picks other words for the same probe. Raises PreflightError when the probe needs a chat template and
        the tokenizer has none, when the template takes no messages of ours, or when no text has that many tokens.
        """
        spans = -(-spec.prompt_tokens // self._span)
        ledger = draw_ledger(seed=self._seed, probe_id=spec.id, draw=draw, spans=spans)
        renders = self._raw_renders(ledger) if spec.prompt_format == "raw" else self._chat_renders(ledger)
        refused: TemplateRefusedError | None = None
        for render in renders:
            try:
                ids = fit(render, spec.prompt_tokens)
            except TemplateRefusedError as error:
                refused = error
                continue
            if ids is not None:
                return tuple(ids)
        raise refused or PreflightError(
            f"probe {spec.id}: this tokenizer makes no {spec.prompt_format} prompt of exactly "
            f"{spec.prompt_tokens} tokens",
            "choose a larger --chunk-size or another --prompt-format",
        )

    def _raw_renders(self, ledger: Ledger) -> list[Render]:
        """List the ways to make a raw prompt of a number of lines and a pad, the fullest first."""

        def render(close: str, lines: int, pad: str) -> list[int]:
            return self._tokenizer.encode(f"{ledger.tag}{pad}\n{ledger.lines(lines)}{close}")

        example = f"Task: {_task(SHOWN)}\nAnswer: {ledger.reading(SHOWN)}\n"
        task = f"Task: {_task(READ)}\nAnswer:"
        return [partial(render, close) for close in (example + task, task, "")]

    def _chat_renders(self, ledger: Ledger) -> list[Render]:
        """List the ways to make a chat prompt of a number of lines and a pad, the fullest first."""
        opening = self._best_opening()

        def render(task: str, later: list[Message], lines: int, pad: str) -> list[int]:
            opened = opening(ledger.tag + pad, ledger.lines(lines) + task)
            return self._tokenizer.render_chat([*opened, *later])

        example: list[Message] = [
            {"role": "assistant", "content": ledger.reading(SHOWN)},
            {"role": "user", "content": _task(READ)},
        ]
        return [
            partial(render, _task(SHOWN), example),
            partial(render, _task(READ), []),
            partial(render, "", []),
        ]

    def _best_opening(self) -> Opening:
        """Return the opening that brings the tag nearest to the start: most often the one with a system message."""
        if not self._tokenizer.has_chat_template:
            raise PreflightError(
                "the tokenizer has no chat template, so it makes no chat prompt",
                "choose a --tokenizer with a chat template, or --prompt-format raw",
            )
        if self._opening is None:
            user = self._shared_start(_open_with_user)
            try:
                system = self._shared_start(_open_with_system)
            except TemplateRefusedError:
                system = FAR
            self._opening = _open_with_system if system <= user and system < FAR else _open_with_user
        return self._opening

    def _shared_start(self, opening: Opening) -> int:
        """Count the ids before the first that depends on the tag; FAR where none does."""
        one, two = (self._tokenizer.render_chat(opening(tag, "water")) for tag in ("river", "candle"))
        places = (place for place, ids in enumerate(zip(one, two, strict=False)) if ids[0] != ids[1])
        return next(places, FAR)


def _task(keys: str) -> str:
    return f"Write the list from {keys[0]} to {keys[-1]}."


def _open_with_system(tag: str, text: str) -> list[Message]:
    return [{"role": "system", "content": tag}, {"role": "user", "content": text}]


def _open_with_user(tag: str, text: str) -> list[Message]:
    return [{"role": "user", "content": f"{tag}\n{text}"}]
