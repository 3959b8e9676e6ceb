"""The tokenizer as the plan needs it, and its loading from a folder with transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kvverify.errors import PreflightError

Message = Mapping[str, str]
"""One chat message: ``role`` and ``content``."""


class TemplateRefusedError(PreflightError):
    """The chat template raised on these messages, for instance because it knows no system role."""


class Tokenizer(Protocol):
    """Text and messages in, token ids out, exactly as a client of the engine would get them."""

    @property
    def has_chat_template(self) -> bool:
        """Whether ``render_chat`` can work at all."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, added tokens included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a raw prompt, with the special tokens that the tokenizer itself adds, as vLLM does."""
        ...

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of what the chat template makes of the messages, generation prompt added.

        Raises TemplateRefusedError when the template does not take the messages.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, special tokens included."""
        ...


class _HubTokenizer(Protocol):
    """What is used of a transformers tokenizer: that package has no types that could be checked here."""

    chat_template: object

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: list[int]) -> str: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        return_dict: bool,
    ) -> list[int]: ...


class FolderTokenizer:
    """A Hugging Face tokenizer read from a local folder."""

    def __init__(self, tokenizer: _HubTokenizer, folder: Path) -> None:
        self._tokenizer = tokenizer
        self._folder = folder

    @property
    def has_chat_template(self) -> bool:
        """Whether the folder has a chat template."""
        return bool(self._tokenizer.chat_template)

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, added tokens included."""
        return len(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a raw prompt, special tokens included."""
        return self._tokenizer.encode(text)

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of the chat template's output, generation prompt added."""
        try:
            return self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        except Exception as error:
            # A template is a program of its own and may raise anything; the cause is in the message.
            roles = ", ".join(message["role"] for message in messages)
            raise TemplateRefusedError(
                f"the chat template of {self._folder} refuses messages with roles {roles}: {_one_line(error)}",
                "choose a --tokenizer with a template for text chat, or --prompt-format raw",
            ) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, special tokens included."""
        return self._tokenizer.decode(list(ids))


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer in ``folder``, without network access and without running code that the folder carries.

    Raises PreflightError when the folder holds no tokenizer that transformers can read.
    """
    if not folder.is_dir():
        raise PreflightError(f"--tokenizer: {folder} is not a folder", "give a folder with a tokenizer.json")
    # Imported here because it takes seconds, which commands that need no tokenizer must not.
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        # transformers and tokenizers raise many kinds for a broken folder, bare Exception among them.
        raise PreflightError(
            f"--tokenizer: {folder} holds no readable tokenizer: {_one_line(error)}",
            "give a folder with a tokenizer.json and its tokenizer_config.json",
        ) from error
    return FolderTokenizer(tokenizer, folder)


def _one_line(error: Exception) -> str:
    """Return the first line of the error's text, or its kind where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
