"""The tokenizer as the plan needs it, and its loading from a folder with transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kvverify.errors import PreflightError

Message = dict[str, str]
"""One chat message: ``role`` and ``content``."""


class TemplateRefusal(PreflightError):
    """The chat template raised on these messages, for instance because it knows no system role."""


class Tokenizer(Protocol):
    """Text and messages in, token ids out, exactly as a client of the engine would get them."""

    @property
    def has_chat_template(self) -> bool:
        """Whether ``render_chat`` can work at all."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, added tokens included: every id lies in ``range(vocabulary_size)``."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a raw prompt, with the special tokens that the tokenizer itself adds (as vLLM encodes a text prompt)."""
        ...

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the chat template's output for these messages with the generation prompt added.

        Raises TemplateRefusal when the template does not take the messages.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included."""
        ...


class FolderTokenizer:
    """A Hugging Face tokenizer read from a local folder."""

    def __init__(self, tokenizer: Any, folder: Path) -> None:
        self._tokenizer = tokenizer
        self._folder = folder

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def vocabulary_size(self) -> int:
        return len(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text)]

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        try:
            ids = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except Exception as error:  # a template is a program of its own: it can raise anything
            roles = ", ".join(message["role"] for message in messages)
            raise TemplateRefusal(
                f"the chat template of {self._folder} refuses messages with roles {roles}: {error}",
                "choose --tokenizer with a template for text chat, or --prompt-format raw",
            ) from error
        return [int(token) for token in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in ``folder``, without network access and without running code that the folder carries.

    Raises PreflightError when the folder holds no tokenizer that transformers can read.
    """
    if not folder.is_dir():
        raise PreflightError(f"--tokenizer: {folder} is not a folder", "give a folder with a tokenizer.json")
    from transformers import AutoTokenizer  # here: transformers takes seconds to import

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds (OSError, ValueError, KeyError, tokenizers' own)
        cause = str(error).strip().splitlines() or [type(error).__name__]
        raise PreflightError(
            f"--tokenizer: {folder} holds no readable tokenizer: {cause[0]}",
            "give a folder with a tokenizer.json (and its tokenizer_config.json)",
        ) from error
    return FolderTokenizer(tokenizer, folder)
