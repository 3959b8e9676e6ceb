"""Every refusal of an acceptance run on the command line: one line, status 2, nothing written."""

import copy
import json
import sys
from pathlib import Path

import pytest

from kvverify import preflight, verification
from kvverify.cli import main
from kvverify.target import runtimes
from kvverify.target.accelerator import Accelerator
from kvverify.target.lmcache_settings import Settings

from .tiny_model import make_model

UNRECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "unrecorded.json"
L4 = Accelerator("cuda", "NVIDIA L4", "8.9", "580.95.05", 24152899584)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def refuse(model, tmp_path, monkeypatch, capfd):
    """Run an acceptance on a machine that has an L4 and the engine, as far as preflight can see; give its one line."""

    def no_engine(*_: object) -> None:
        pytest.fail("an engine was about to start")

    def run(change=lambda _: None, *extra: str, lmcache: str = "0.5.4", gpu: Accelerator = L4) -> str:
        installed = {"vllm": "0.28.0", "lmcache": lmcache}
        monkeypatch.setattr(runtimes, "installed_version", installed.get)
        monkeypatch.setattr(preflight, "find_accelerator", lambda _: gpu)
        resolved = Settings({"chunk_size": 256}, {"chunk_size": "file"})
        monkeypatch.setattr(preflight, "resolve_settings", lambda *_: resolved)
        monkeypatch.setattr(verification, "ArmSession", no_engine)
        document = copy.deepcopy(json.loads(UNRECORDED.read_text()))
        change(document)
        (tmp_path / "fixture.json").write_text(json.dumps(document))
        (tmp_path / "lmcache.yaml").write_text("chunk_size: 256\n")
        (tmp_path / "extra.json").write_text('{"lmcache.chunk_size": 16}')
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.chdir(tmp_path)
        words = f"kvverify run --model {model} --kv-connector LMCacheConnectorV1 --lmcache-config lmcache.yaml --suite "
        words += "acceptance --compare-native --fixture fixture.json --report report.json"
        monkeypatch.setattr(sys, "argv", [*words.split(), *extra])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        assert sorted(tmp_path.rglob("*")) == before
        if "--dry-run" in extra and ended.value.code == 0:
            return captured.out
        assert ended.value.code == 2
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        return captured.err

    return run


def test_an_acceptance_run_is_exactly_24_generations(refuse):
    manifest = json.loads(refuse(lambda _: None, "--dry-run"))
    assert manifest["suite"] == "acceptance"
    assert sum(1 + 2 * (1 + probe["reuse_count"]) for probe in manifest["probes"]) == 24


OTHERS = {
    "GPU": (
        lambda f: f["needs"].update(gpu={"name": "NVIDIA H200", "compute_capability": "9.0"}),
        "made for NVIDIA H200",
    ),
    "LMCache": (lambda f: f["needs"]["packages"].update(lmcache=["0.5.5rc5"]), "made for lmcache 0.5.5rc5, 0.5.4"),
    "model": (
        lambda f: f["needs"]["model"].update(files_sha256="ab" * 32),
        "--model: the fixture was made for another",
    ),
    "prompt": (lambda f: f["probes"][1].update(prompt_sha256="ab" * 32), "probe chat-511 does not come out"),
    "length": (lambda f: f["settings"].update(max_tokens=8), "--max-tokens: the fixture needs 8"),
    "chunk": (lambda f: f["settings"].update(chunk_size=64), "--chunk-size: the fixture needs 64"),
    "budget": (lambda f: f["probes"].pop(), "exactly 24"),
}


@pytest.mark.parametrize(("change", "says"), OTHERS.values(), ids=OTHERS)
def test_a_run_that_is_not_what_the_fixture_needs_is_refused(refuse, change, says):
    assert says in refuse(change)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (("--seed", "1"), "--seed: the fixture needs 0"),
        (("--dtype", "bfloat16"), "--dtype: the fixture needs float16"),
        (("--block-size", "32"), "--block-size: the fixture needs 16"),
        (("--reuse-counts", "1"), "--reuse-counts"),
        (("--prompt-format", "raw"), "--prompt-format"),
        (("--native-prefix-caching",), "--native-prefix-caching"),
        (("--kv-connector-module-path", "m"), "--kv-connector-module-path"),
        (("--kv-connector-extra-config", "extra.json"), "--kv-connector-extra-config"),
        (("--fixture", "none.json"), "--fixture"),
        (("--suite", "smoke"), "belongs to --suite acceptance"),
        (("--kv-connector", "none"), "--suite acceptance needs --kv-connector"),
    ],
)
def test_an_option_that_the_acceptance_cannot_take_is_refused(refuse, extra, says):
    assert says in refuse(lambda _: None, *extra)


def test_an_lmcache_that_is_not_supported_is_refused(refuse):
    assert "lmcache 0.5.3 is installed" in refuse(lmcache="0.5.3")
