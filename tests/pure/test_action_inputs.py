"""The action's bash: each function for itself, and that inputs are refused where kvverify refuses the options."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kvverify.cli import run as run_command
from kvverify.target.options import RunOptions

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
DEFAULTS = {name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()}
PLAIN = DEFAULTS | {"model": "Qwen/Qwen3-0.6B", "model-revision": COMMIT, "kv-connector": "none"}
LMCACHE = {"kv-connector": "LMCacheConnectorV1", "lmcache-config": "lmcache-local-cpu.yaml"}
ACCEPTANCE = LMCACHE | {"suite": "acceptance", "compare-native": "true", "fixture": "efim-018-l4.json"}


def bash(
    code: str, folder: Path, inputs: dict[str, str] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run code after the action's functions, with inputs as a step of the action has them."""
    (folder / "state").mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_REPOSITORY": "Example/KVVerify",
        "GITHUB_OUTPUT": str(folder / "output"),
        "RUNNER_TEMP": str(folder),
        **{f"KVV_{name.upper().replace('-', '_')}": value for name, value in (inputs or PLAIN).items()},
        **more,
    }
    script = f'source "{ROOT}/entrypoint/action.sh"; set_scene; STATE="{folder}/state"; {code}'
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


def read(folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    inputs = PLAIN | {name.replace("_", "-"): value for name, value in changes.items()}
    return bash('read_inputs; printf "%s\\0" "${RUN_ARGUMENTS[@]}" -- "${RUN_MOUNTS[@]}"', folder, inputs)


def test_every_option_of_run_that_a_workflow_needs_is_an_input():
    options = {parameter.opts[0].removeprefix("--") for parameter in run_command.params}
    of_the_action_itself = {"report", "dry-run", "start-timeout", "answer-timeout", "shutdown-timeout"}
    always_refused = {"kv-connector-module-path", "kv-connector-extra-config"}

    assert options - of_the_action_itself - always_refused <= ACTION["inputs"].keys()


def test_every_input_reaches_the_script_through_the_environment():
    verify = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "verify")

    assert {name for name in verify["env"] if name.startswith("KVV_")} == {
        f"KVV_{name.upper().replace('-', '_')}" for name in ACTION["inputs"]
    }
    assert all("${{" not in step.get("run", "") for step in ACTION["runs"]["steps"])


def test_defaults_are_those_of_the_command_line():
    options = RunOptions(model="", kv_connector="none", report=Path())

    for name in ("suite", "max-tokens", "seed", "device", "dtype", "gpu-memory-utilization", "block-size", "tenant"):
        assert DEFAULTS[name] == str(getattr(options, name.replace("-", "_"))), name


def test_a_hub_model_and_plain_options_become_arguments(tmp_path):
    done = read(tmp_path, reuse_counts="2,5", chunk_size="512", native_prefix_caching="false")

    arguments, _, mounts = done.stdout.removesuffix("\0").partition("\0--\0")
    assert done.returncode == 0, done.stdout
    assert {"--model=Qwen/Qwen3-0.6B", f"--model-revision={COMMIT}", "--kv-connector=none", "--reuse-counts=2,5"} < set(
        arguments.split("\0")
    )
    assert {"--chunk-size=512", "--no-native-prefix-caching", "--seed=0"} < set(arguments.split("\0"))
    assert mounts == ""


def test_folders_and_files_are_mounted_read_only_and_named_as_the_container_sees_them(tmp_path):
    (tmp_path / "weights, new").mkdir()
    inputs = ACCEPTANCE | {"model": "weights, new", "model-revision": ""}

    done = read(tmp_path, **{name.replace("-", "_"): value for name, value in inputs.items()})

    assert done.returncode == 0, done.stdout
    words = done.stdout.split("\0")
    assert {"--model=/mnt/model", "--lmcache-config=/mnt/lmcache.yaml", "--fixture=/mnt/fixture.json"} < set(words)
    assert f'type=bind,"source={tmp_path}/weights, new",target=/mnt/model,readonly' in words
    assert f'type=bind,"source={ROOT}/fixtures/efim-018-l4.json",target=/mnt/fixture.json,readonly' in words


def test_a_file_of_the_workspace_comes_before_a_shipped_one(tmp_path):
    (tmp_path / "efim-018-l4.json").write_text("{}")

    done = read(tmp_path, **{name.replace("-", "_"): value for name, value in ACCEPTANCE.items()})

    assert f'"source={tmp_path}/efim-018-l4.json"' in done.stdout


# What the action refuses, and whether kvverify run refuses the same options by itself.
REFUSED = [
    ({"model": ""}, True),
    ({"model": "../x"}, False),
    ({"model": "--privileged"}, True),
    ({"model-revision": ""}, True),
    ({"model-revision": "main"}, True),
    ({"model-revision": COMMIT.upper()}, True),
    ({"tokenizer-revision": COMMIT}, True),
    ({"tokenizer": "a/b", "tokenizer-revision": "v1"}, False),  # kvverify looks for the model first
    ({"kv-connector": "SharedStorageConnector"}, True),
    ({"kv-connector": ""}, True),
    ({"native-prefix-caching": "yes"}, False),
    ({"lmcache-config": "lmcache-local-cpu.yaml"}, True),
    ({"kv-connector": "LMCacheConnectorV1"}, True),
    (LMCACHE | {"native-prefix-caching": "true"}, True),
    (LMCACHE | {"device": "cpu"}, True),
    (LMCACHE | {"lmcache-config": "missing.yaml"}, False),  # without a GPU, kvverify refuses that first
    ({"suite": "smok"}, True),
    ({"suite": "acceptance"}, True),
    ({"fixture": "efim-018-l4.json"}, True),
    ({"compare-native": "true"}, True),
    (ACCEPTANCE | {"compare-native": "false"}, True),
    (ACCEPTANCE | {"prompt-format": "raw"}, True),
    (ACCEPTANCE | {"reuse-counts": "2"}, True),
    ({"prompt-format": "markdown"}, True),
    ({"reuse-counts": "1,1"}, True),
    ({"reuse-counts": "0"}, True),
    ({"reuse-counts": "1,"}, True),
    ({"reuse-counts": "-1"}, True),
    ({"max-tokens": "0"}, True),
    ({"max-tokens": "many"}, True),
    ({"seed": "-1"}, True),
    ({"seed": "4294967296"}, True),
    ({"device": "tpu"}, True),
    ({"dtype": "int8"}, True),
    ({"gpu-memory-utilization": "0"}, True),
    ({"gpu-memory-utilization": "1"}, True),
    ({"gpu-memory-utilization": "nan"}, True),
    ({"max-model-len": "0"}, True),
    ({"block-size": "0"}, True),
    ({"chunk-size": "100"}, False),  # kvverify says so once the model is there
    ({"tenant": "team a"}, False),
    ({"tenant": "$(touch x)"}, False),
    ({"image": "-v"}, False),
    ({"gpus": "all,capabilities=x"}, False),
    ({"hf-token": "hf_ x"}, False),
    ({"timeout-minutes": ""}, False),
    ({"timeout-minutes": "1.5"}, False),
    ({"gate": "none"}, False),
    ({"gate": "acceptance"}, False),
    ({"allow-inconclusive": "maybe"}, False),
    ({"artifact-name": "a/b"}, False),
    ({"suite": "smoke\n"}, False),
    ({"tenant": "a\x1b[31m"}, False),
]


@pytest.mark.parametrize(("changes", "by_kvverify_too"), REFUSED)
def test_what_cannot_run_is_refused_on_the_runner(tmp_path, changes, by_kvverify_too):
    inputs = PLAIN | changes
    done = bash("read_inputs; echo accepted", tmp_path, inputs)

    assert done.returncode == 2
    assert "accepted" not in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("::error title=kvverify::")]) == 1
    assert (tmp_path / "state" / "problem").read_text().strip()
    assert not (tmp_path / "x").exists()
    if by_kvverify_too:
        refused = CliRunner().invoke(run_command, command_line(inputs, tmp_path, changes))
        assert any(f"--{name}" in f"{refused.output} {refused.exception}" for name in changes)


def command_line(inputs: dict[str, str], folder: Path, changes: dict[str, str]) -> list[str]:
    """Give the same options to the command, on the CPU engine that the tests have unless the device is the matter."""
    inputs = inputs | {"device": changes.get("device", "cpu")}
    options = {parameter.opts[0].removeprefix("--"): parameter for parameter in run_command.params}
    arguments = [f"--report={folder}/report.json", "--dry-run"]
    for name, value in inputs.items():
        if name not in options or (not value and name not in {"model", "kv-connector"}):
            continue
        if name in {"lmcache-config", "fixture"}:
            value = str(ROOT / "fixtures" / value)  # noqa: PLW2901 - the file that the action would mount
        if name in {"compare-native", "native-prefix-caching"}:
            arguments += [f"--{'' if value == 'true' else 'no-'}{name}"] if name[0] == "n" or value == "true" else []
        else:
            arguments.append(f"--{name}={value}")
    return arguments


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"suite": "smoke", "prompt-format": "both", "reuse-counts": "10,2"},
        {"gpu-memory-utilization": ".5", "seed": "4294967295"},
        LMCACHE | {"chunk-size": "256"},
        ACCEPTANCE | {"gate": "acceptance"},
        {"gpus": "device=0,GPU-8f6d", "hf-token": "hf_abc"},
        {"gpus": "2", "image": "ghcr.io/example/kvverify@sha256:" + 64 * "a"},
        {"device": "cpu", "gpus": ""},
    ],
)
def test_what_can_run_is_accepted(tmp_path, changes):
    done = bash("read_inputs; echo accepted", tmp_path, PLAIN | changes)

    assert (done.returncode, done.stdout) == (0, "accepted\n")


@pytest.mark.parametrize("text", ["plain", "50% off", "a\nb", "a\r\n::error::b", "::set-output name=x::y", "%0A", "ü"])
def test_no_text_ends_a_workflow_command_or_begins_another(tmp_path, text):
    done = bash('annotate error "a:b,$TEXT" "$TEXT"', tmp_path, TEXT=text)

    assert done.stdout.count("\n") == 1
    command, title, data = re.fullmatch(r"::(error) title=([^:,]*)::(.*)\n", done.stdout).groups()  # type: ignore[union-attr]
    assert command == "error"
    assert unescape(title) == f"a:b,{text}"
    assert unescape(data) == text


def unescape(text: str) -> str:
    """Read a property or data as GitHub does."""
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_an_output_with_a_line_break_is_refused(tmp_path):
    done = bash('set_output report "a\nverdict=pass"', tmp_path)

    assert done.returncode == 2
    assert not (tmp_path / "output").exists()


def test_what_engines_write_is_between_words_that_nobody_can_guess(tmp_path):
    done = bash("quietly bash -c 'printf \"::error::forged\"; exit 3' || echo status $?", tmp_path)

    stop, forged, resume, status = done.stdout.splitlines()
    token = stop.removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    assert (forged, resume, status) == ("::error::forged", f"::{token}::", "status 3")


def test_the_default_image_is_the_repositorys_own_by_digest(tmp_path):
    digest = "sha256:" + 64 * "b"
    file = tmp_path / "entrypoint" / "image.digest"
    file.parent.mkdir()
    file.write_text(f"{digest}\n")

    own = bash(f'ACTION_ROOT="{tmp_path}"; default_image', tmp_path)
    used = bash(f'ACTION_ROOT="{tmp_path}"; default_image', tmp_path, ACTION_REPOSITORY="Someone/Verifier")
    file.write_text("latest\n")
    moved = bash(f'ACTION_ROOT="{tmp_path}"; choose_image; echo accepted', tmp_path)

    assert own.stdout == f"ghcr.io/example/kvverify@{digest}"
    assert used.stdout == f"ghcr.io/someone/verifier@{digest}"
    assert "records no released image" in moved.stdout
    assert "accepted" not in moved.stdout


@pytest.mark.parametrize(
    ("gpus", "device", "words"),
    [
        ("all", "cuda", ["--gpus", "all"]),
        ("2", "cuda", ["--gpus", "2"]),
        ("device=0,1", "cuda", ["--gpus", '"device=0,1"']),
        ("none", "cuda", []),
        ("all", "cpu", []),
    ],
)
def test_gpus_are_asked_for_as_docker_wants_it(tmp_path, gpus, device, words):
    done = bash("gpu_options", tmp_path, PLAIN | {"gpus": gpus, "device": device})

    assert done.stdout.splitlines() == words


def test_the_token_is_masked_and_stands_in_no_command_line(tmp_path):
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "docker").write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >>"$SEEN"\nprintf "%s" "${HF_TOKEN-unset}" >"$SEEN.token"\n'
    )
    (fake / "docker").chmod(0o755)
    code = "hide_token; IMAGE_ID=image; read_inputs; start_run; wait"

    done = bash(
        code,
        tmp_path,
        PLAIN | {"hf-token": "hf_secret"},
        PATH=f"{fake}:{os.environ['PATH']}",
        SEEN=str(tmp_path / "seen"),
    )

    seen = (tmp_path / "seen").read_text().splitlines()
    assert done.stdout == "::add-mask::hf_secret\n"
    assert not [word for word in seen if "hf_secret" in word]
    assert seen[seen.index("HF_TOKEN") - 1] == "-e"
    assert (tmp_path / "seen.token").read_text() == "hf_secret"
    assert seen[seen.index("--cap-drop") + 1] == "ALL"
    assert {"no-new-privileges", "--read-only", "--rm"} < set(seen)
