"""LMCache's settings as LMCache's own loader resolves them, in the resolver's process, and what is refused of them."""

import dataclasses
import enum
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
import yaml

from kvverify.engine.worker.inspection import json_value
from kvverify.errors import UsageError
from kvverify.redaction import holds_secret, is_secret, without_secrets
from kvverify.target import lmcache_settings
from kvverify.target.arm import EngineSettings
from kvverify.target.lmcache import lmcache_arm
from kvverify.target.lmcache_settings import REFUSED, Settings, check_settings, resolve_settings
from kvverify.target.variables import arm_variables, recorded_variables

ROOT = Path(__file__).resolve().parents[2]
BASE = "chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: 1.0\n"


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("resolver_server.py"))]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture(autouse=True)
def resolver(request, monkeypatch, tmp_path):
    """Start the resolver as a fork of one process, except where a test asks for a process of its own."""
    if "process_of_its_own" in request.fixturenames:
        return
    server = request.getfixturevalue("server")

    def run(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[1:3] == ["-m", "kvverify.target.lmcache_resolver"]
        outputs = {name: str(tmp_path.parent / f"{tmp_path.name}.{name}") for name in ("stdout", "stderr")}
        server.stdin.write(json.dumps({"argv": command[2:], "env": env, **outputs}) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(Path(outputs[n]).read_text() for n in outputs))

    monkeypatch.setattr(
        lmcache_settings, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    )


@pytest.fixture
def process_of_its_own() -> None:
    """Ask for the resolver as the product starts it."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lmcache.yaml"
    path.write_text(BASE)
    return path


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
    return {**clean, "PYTHONPATH": str(ROOT), **more}


def resolve(file: Path, text: str | bytes | None = None, chunk_size: int | None = None, **variables: str) -> Settings:
    if isinstance(text, bytes):
        file.write_bytes(text)
    elif text is not None:
        file.write_text(text)
    return resolve_settings(file, chunk_size, environment(**variables))


def refused(file: Path, text: str | bytes | None = None, chunk_size: int | None = None, **variables: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        resolve(file, text, chunk_size, **variables)
    assert "\n" not in str(error.value)
    assert error.value.remedy
    return error.value


def test_file_environment_and_default_are_told_apart(file):
    settings = resolve(file, BASE + "local_disk: null\n", LMCACHE_MAX_LOCAL_CPU_SIZE="3", LMCACHE_CACHE_POLICY="LFU")
    assert settings.chunk_size == 256
    assert settings.values["max_local_cpu_size"] == 3.0
    assert settings.values["cache_policy"] == "LFU"
    sources = settings.sources
    assert sources["chunk_size"] == sources["local_cpu"] == sources["local_disk"] == "file"
    assert sources["max_local_cpu_size"] == sources["cache_policy"] == "environment"
    assert sources["use_layerwise"] == sources["enable_blending"] == "default"
    assert set(sources) == set(settings.values)
    assert set(REFUSED) < set(settings.values)


def test_the_environment_overrides_the_chunk_size_and_the_assertion_sees_it(file):
    assert resolve(file, LMCACHE_CHUNK_SIZE="128").chunk_size == 128
    assert resolve(file, chunk_size=256).chunk_size == 256
    says = refused(file, chunk_size=256, LMCACHE_CHUNK_SIZE="128").problem
    assert says == "--chunk-size: 256 was asserted, LMCache resolves chunk_size to 128 (from environment)"


def test_the_shipped_configuration_resolves(process_of_its_own):
    settings = resolve(ROOT / "fixtures" / "lmcache-local-cpu.yaml", chunk_size=256)
    assert {name for name, source in settings.sources.items() if source != "default"} == {
        "chunk_size",
        "local_cpu",
        "max_local_cpu_size",
    }


def test_a_chunk_size_of_the_file_or_of_lmcache_itself_is_asserted_too(file):
    assert "chunk_size to 256 (from file)" in refused(file, chunk_size=64).problem
    assert "chunk_size to 256 (from default)" in refused(file, "local_cpu: true\n", chunk_size=64).problem


ON = {
    "enable_blending": ("enable_blending: true\nuse_layerwise: true\nsave_unfull_chunk: true\n", "true"),
    "enable_pd": ("enable_pd: true\npd_role: receiver\n", "true"),
    "use_gpu_connector_v3": ("use_gpu_connector_v3: true\n", "1"),
    "remote_config_url": ("remote_config_url: http://127.0.0.1:9/config\n", "http://127.0.0.1:9/config"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_is_no_exact_reuse_is_refused_wherever_it_is_switched_on(file, name):
    text, value = ON[name]
    error = refused(file, BASE + text)
    assert error.problem == f"--lmcache-config: {name} is on, and {REFUSED[name]}"
    assert error.remedy == "switch it off"
    error = refused(file, BASE, **{f"LMCACHE_{name.upper()}": value})
    assert error.problem == f"LMCACHE_{name.upper()}: {name} is on, and {REFUSED[name]}"


@pytest.mark.parametrize("name", ["enable_blending", "enable_pd", "use_gpu_connector_v3"])
def test_a_setting_that_the_environment_switches_off_is_off(file, name):
    settings = resolve(file, f"{BASE}{name}: true\n", **{f"LMCACHE_{name.upper()}": "false"})
    assert settings.values[name] is False
    assert settings.sources[name] == "environment"


def test_a_quoted_switch_is_a_switch(file):
    assert "LMCACHE_ENABLE_BLENDING" in refused(file, LMCACHE_ENABLE_BLENDING='"True"').problem


def test_a_refused_setting_is_named_also_where_lmcaches_own_check_fails(file):
    assert "enable_pd is on" in refused(file, BASE + "enable_pd: true\n").problem


def test_a_file_that_lmcache_cannot_load_is_refused_with_its_reason(file, process_of_its_own):
    assert "(TypeError: int() argument must be" in refused(file, BASE.replace("256", "[1]")).problem


def test_what_lmcaches_own_check_refuses_is_refused(file):
    error = refused(file, BASE + "min_retrieve_tokens: -1\n")
    assert "LMCache does not accept" in error.problem
    assert "min_retrieve_tokens must be >= 0" in error.problem


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (BASE + "chunksize: 16\n", "chunksize"),
        (BASE + "Chunk_Size: 16\nzzz: 1\n", "Chunk_Size, zzz"),
        ("1: 2\n", "1"),
        ("null: 2\n", "None"),
        # These are aliases that LMCache lists and does not follow.
        (BASE + "enable_xpyd: true\n", "enable_xpyd"),
        (BASE + "controller_url: localhost:1\n", "controller_url"),
        # This one is deprecated, with no setting of that name left.
        (BASE + "nixl_peer_port: 1\n", "nixl_peer_port"),
    ],
)
def test_keys_without_an_effect_are_refused_by_name(file, text, unknown):
    assert refused(file, text).problem.endswith(f"has keys that the installed LMCache does not know: {unknown}")


@pytest.mark.parametrize(
    ("alias", "name"), [("plugin_locations", "runtime_plugin_locations"), ("external_backends", "storage_plugins")]
)
def test_a_deprecated_name_that_lmcache_follows_sets_the_new_one(file, alias, name):
    settings = resolve(file, f"{BASE}{alias}: []\n")
    assert settings.values[name] == []
    assert settings.sources[name] == "file"
    settings = resolve(file, BASE, **{f"LMCACHE_{alias.upper()}": "x"})
    assert settings.values[name] == ["x"]
    assert settings.sources[name] == "environment"


def test_an_alias_that_lmcache_does_not_follow_switches_nothing_on(file):
    assert resolve(file, LMCACHE_ENABLE_XPYD="true").values["enable_pd"] is False


@pytest.mark.parametrize(
    ("text", "variables", "says"),
    [
        (BASE.replace("256", "abc"), {}, "LMCache cannot read the value of chunk_size"),
        (BASE + "lookup_timeout_ms: soon\n", {}, "LMCache cannot read the value of lookup_timeout_ms"),
        (BASE, {"LMCACHE_CHUNK_SIZE": "abc"}, "LMCache cannot read the value of LMCACHE_CHUNK_SIZE"),
        (BASE, {"LMCACHE_CHUNK_SIZE": ""}, "LMCache cannot read the value of LMCACHE_CHUNK_SIZE"),
        (BASE, {"LMCACHE_EXTRA_CONFIG": "{"}, "LMCache cannot read the value of LMCACHE_EXTRA_CONFIG"),
        (BASE.replace("256", "[1]"), {}, "LMCache does not accept"),
        (BASE.replace("256", "0"), {}, "--lmcache-config: chunk_size must be a positive number of tokens, not 0"),
        (BASE, {"LMCACHE_CHUNK_SIZE": "-1"}, "LMCACHE_CHUNK_SIZE: chunk_size must be a positive number of tokens"),
        (BASE.replace("256", "null"), {}, "--lmcache-config: chunk_size must be a positive number"),
    ],
)
def test_values_that_lmcache_would_pass_over_are_refused(file, text, variables, says):
    assert says in refused(file, text, **variables).problem


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "sets nothing"),
        ("# only a comment\n", "sets nothing"),
        ("{}", "sets nothing"),
        ("[]", "sets nothing"),
        ("- chunk_size\n", "sets nothing"),
        ("chunk_size\n", "sets nothing"),
        ("null", "sets nothing"),
        ("chunk_size: [", "cannot be read as YAML"),
        ("chunk_size: 1\n\tx: 2", "cannot be read as YAML"),
        ("a: 1\n--- \nb: 2\n", "cannot be read as YAML"),
        ("chunk_size: !!python/object/apply:os.getcwd []\n", "cannot be read as YAML"),
        (b"\xff\xfe\x00\x01", "cannot be read as YAML"),
        (b"chunk_size: \x00\n", "cannot be read as YAML"),
        ("[1]: 2", "cannot be read as YAML"),
    ],
)
def test_a_file_without_settings_is_refused(file, text, says):
    assert says in refused(file, text).problem


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        assert "cannot be read as YAML" in refused(path).problem


SECRETS = {
    "a user in a URL": ("remote_url", "redis://me:hunter2@store:6379", "LMCACHE_REMOTE_URL"),
    "a user with slashes": ("remote_url", "redis://me:hun/ter2@store:6379", "LMCACHE_REMOTE_URL"),
    "a query": ("remote_url", "s3://bucket?secret_key=hunter2", "LMCACHE_REMOTE_URL"),
    "extra configuration": ("extra_config", {"redis_password": "hunter2"}, "LMCACHE_EXTRA_CONFIG"),
    "deep inside": ("extra_config", {"a": [{"api_key": "hunter2"}]}, "LMCACHE_EXTRA_CONFIG"),
    "a number": ("extra_config", {"redis_password": 12345}, "LMCACHE_EXTRA_CONFIG"),
    "a list": ("extra_config", {"access_keys": ["hunter2"]}, "LMCACHE_EXTRA_CONFIG"),
}


@pytest.mark.parametrize(("name", "value", "variable"), SECRETS.values(), ids=SECRETS)
def test_a_secret_is_refused_because_lmcache_logs_its_settings(file, name, value, variable):
    error = refused(file, BASE + yaml.safe_dump({name: value}))
    assert error.problem.startswith(f"--lmcache-config: {name} holds a secret")
    assert "hun" not in str(error)
    assert "12345" not in str(error)
    text = value if isinstance(value, str) else json.dumps(value)
    error = refused(file, BASE, **{variable: text})
    assert error.problem.startswith(f"{variable}: {name} holds a secret")
    assert "hun" not in str(error)


@pytest.mark.parametrize(("name", "value", "variable"), SECRETS.values(), ids=SECRETS)
def test_no_secret_reaches_a_report(name, value, variable):
    """Neither from the worker's settings nor from the variables, however it got past the refusal."""
    shown = json.dumps(json_value(value, name))
    assert "hun" not in shown
    assert "12345" not in shown
    text = value if isinstance(value, str) else json.dumps(value)
    for written in (text, repr(value)):
        recorded = recorded_variables({variable: written})[variable]
        assert "hun" not in recorded
        assert "12345" not in recorded


def test_a_setting_that_is_no_secret_is_recorded_as_it_is():
    for name, value in (
        ("remote_url", "lm://localhost:65432"),
        ("local_disk", "/mnt/a@b/"),
        ("extra_config", {"max_tokens": 5, "keyspace": "x", "a": None, "b": ""}),
        ("min_retrieve_tokens", 16),
        ("tokenizer", "/models/t"),
        ("stop_token_ids", [1, 2]),
        ("api_key", None),
        ("api_key", ""),
        ("password", None),
        ("use_auth", False),
    ):
        assert json_value(value, name) == value
        assert not holds_secret(name, value)


def test_every_kind_of_value_becomes_json():
    class Policy(enum.Enum):
        FIRST = 1

    @dataclasses.dataclass
    class Part:
        hf_token: str
        path: PurePosixPath
        size: float

    found = json_value(
        {
            "policy": Policy.FIRST,
            "part": Part("hunter2", PurePosixPath("/a"), float("inf")),
            "set": {3, 1},
            "class": Part,
            "tuple": (1, True, None),
            "token": object(),
            "url": PurePosixPath("http:/x"),
        }
    )
    assert found["policy"] == "FIRST"
    assert found["part"] == {"hf_token": "(not recorded)", "path": "/a", "size": "inf"}
    assert found["set"] == [1, 3]
    assert found["class"].endswith("Part")
    assert found["tuple"] == [1, True, None]
    assert found["token"] == "(not recorded)"
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    "name", ["token", "HF_TOKEN", "api_key", "access-keys", "client_secret", "PASSWORD", "x_passwd", "basic_auth"]
)
def test_names_of_secrets(name):
    assert is_secret(name, "x")
    assert not is_secret(name, None)
    assert not is_secret(name, "")
    assert not is_secret(name, value=True)


def test_a_text_without_secrets_stays_as_it_is():
    for text in ("", "lm://host:1", "FLASH_ATTN", "0,1", "/usr/lib:/lib", "tokens 5", "a=b"):
        assert without_secrets(text) == text


def test_the_arm_pins_the_settings_that_were_checked(file):
    resolved = resolve(file)
    settings = EngineSettings("m", "t", "float16", 0, 2048, 16, 0.45, 16)
    arm = lmcache_arm(settings, file, resolved)
    assert arm.connector_settings == {"chunk_size": 256, **dict.fromkeys(REFUSED, False), "remote_config_url": None}
    assert arm.variables["LMCACHE_CONFIG_FILE"] == str(file)
    transfer = arm.engine_arguments()["kv_transfer_config"]
    assert transfer == {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both", "kv_load_failure_policy": "fail"}
    assert arm.engine_arguments()["enable_prefix_caching"] is False
    assert arm.sampling_extra("me.probe") == {"kv_transfer_params": {"lmcache.tag.scope": "me.probe"}}
    assert arm.has_connector


def worker_says(**settings: object) -> dict:
    values = {"chunk_size": 256, **dict.fromkeys(REFUSED, False), "remote_config_url": None, **settings}
    return {
        "connector": {
            "lmcache": {"settings": {name: {"value": value, "source": "file"} for name, value in values.items()}}
        }
    }


def test_a_worker_with_other_settings_than_were_checked_is_noticed(file):
    arm = lmcache_arm(EngineSettings("m", "t", "float16", 0, 2048, 16, 0.45, 16), file, resolve(file))

    def about_settings(effective: dict) -> list[str]:
        return [found for found in arm.mismatches(effective) if "which preflight resolved" in found]

    assert about_settings(worker_says()) == []
    assert about_settings(worker_says(chunk_size=128)) == [
        "the connector's chunk_size is not 256, which preflight resolved"
    ]
    for name in ("enable_blending", "enable_pd", "use_gpu_connector_v3"):
        assert len(about_settings(worker_says(**{name: True}))) == 1
    assert len(about_settings(worker_says(remote_config_url="http://x"))) == 1
    for silent in ({}, {"connector": None}, {"connector": {}}, {"connector": {"lmcache": None}}):
        assert len(about_settings(silent)) == 1 + len(REFUSED)
    assert len(about_settings({"connector": {"lmcache": {"settings": {}}}})) == 1 + len(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_check_settings_alone_refuses_too(file, name):
    resolved = resolve(file)
    on = Settings({**resolved.values, name: True}, {**resolved.sources, name: "default"})
    with pytest.raises(UsageError, match=f"--lmcache-config: {name} is on"):
        check_settings(on, None)


def test_the_variables_of_an_arm_keep_usage_tracking_off_and_record_no_secret():
    variables = arm_variables({"LMCACHE_TRACK_USAGE": "true", "LMCACHE_REMOTE_URL": "redis://a:b@c"}, "cuda")
    assert variables["LMCACHE_TRACK_USAGE"] == "false"
    assert recorded_variables(variables)["LMCACHE_REMOTE_URL"] == "redis://(not recorded)@c"
    assert recorded_variables({"HF_AUTH": "x", "HF_PASSWD": "y", "VLLM_api_key": "z"}) == dict.fromkeys(
        ("HF_AUTH", "HF_PASSWD", "VLLM_api_key"), "(set, not recorded)"
    )
