"""Which arms a request asks for, and that an engine which is not what its arm's name says is never taken for it."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE, TIERS, expected_arms, misfits

MODULE = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"
FILE = f"/venv/lib/python3.11/site-packages/{MODULE.replace('.', '/')}.py"
CONNECTOR = {
    "class": "LMCacheConnectorV1",
    "module": MODULE,
    "file": FILE,
    "lmcache": {"init_failed": False, "init_failed_reason": ""},
}
TRANSFER = {
    "kv_connector": "LMCacheConnectorV1",
    "kv_connector_module_path": None,
    "kv_load_failure_policy": "fail",
    "kv_connector_extra_config": {},
}
EFFECTIVE = {
    CONTROL: {"prefix_caching": False, "connector": None, "kv_transfer": None},
    NATIVE: {"prefix_caching": True, "connector": None, "kv_transfer": None},
    LMCACHE: {"prefix_caching": False, "connector": CONNECTOR, "kv_transfer": TRANSFER, "kv_memory_cleared": True},
}
NOT_ITS_OWN = "the engine did not load its own LMCacheConnectorV1, which lmcache_connector_v1 needs"
NOT_LOADED = "the engine does not say that it loaded LMCacheConnectorV1, which lmcache_connector_v1 needs"
NOT_INITIALISED = "LMCache did not initialise, so that nothing would be reused ({})"
UNKNOWN = object()
"""Stands for a fact that is left out."""


def changed(path: str, value: object, arm: str = LMCACHE) -> dict:
    facts = copy.deepcopy(EFFECTIVE[arm])
    *way, last = path.split(".")
    place = facts
    for name in way:
        place = place[name]
    if value is UNKNOWN:
        del place[last]
    else:
        place[last] = value
    return facts


def test_names_and_tiers_are_a_contract():
    assert TIERS == {"control": None, "native_prefix_caching": "local", "lmcache_connector_v1": "external"}


@pytest.mark.parametrize(
    ("connector", "native", "compare", "arms"),
    [
        ("none", None, False, [CONTROL, NATIVE]),
        ("none", True, False, [CONTROL, NATIVE]),
        ("none", False, False, [CONTROL]),
        ("none", None, None, [CONTROL, NATIVE]),
        ("LMCacheConnectorV1", None, False, [CONTROL, LMCACHE]),
        ("LMCacheConnectorV1", False, False, [CONTROL, LMCACHE]),
        ("LMCacheConnectorV1", None, True, [CONTROL, LMCACHE, NATIVE]),
        ("LMCacheConnectorV1", None, "yes", [CONTROL, LMCACHE]),
        ("lmcacheconnectorv1", None, False, [CONTROL]),
        ("OffloadingConnector", None, False, [CONTROL]),
        (None, None, False, [CONTROL]),
    ],
)
def test_the_arms_that_a_request_asks_for(connector, native, compare, arms):
    request = {"kv_connector": connector, "native_prefix_caching": native, "compare_native": compare}
    assert expected_arms(request) == arms


def test_an_empty_request_asks_for_a_control_alone():
    assert expected_arms({}) == [CONTROL]


@pytest.mark.parametrize("arm", EFFECTIVE)
def test_an_engine_that_is_what_its_arm_says_fits(arm):
    assert misfits(arm, EFFECTIVE[arm]) == []


@pytest.mark.parametrize("arm", EFFECTIVE)
@pytest.mark.parametrize("engine", EFFECTIVE)
def test_no_arm_passes_for_another(arm, engine):
    assert bool(misfits(arm, EFFECTIVE[engine])) == (arm != engine)


@pytest.mark.parametrize("arm", EFFECTIVE)
def test_an_unknown_configuration_fits_no_arm(arm):
    assert misfits(arm, None) == ["the engine's effective configuration is unknown"]
    assert misfits(arm, {})


@pytest.mark.parametrize(
    ("arm", "value", "says"),
    [
        (CONTROL, True, "the engine's prefix caching is on, control needs it off"),
        (LMCACHE, True, "the engine's prefix caching is on, lmcache_connector_v1 needs it off"),
        (NATIVE, False, "the engine's prefix caching is off, native_prefix_caching needs it on"),
        (NATIVE, None, "the engine's prefix caching is unknown, native_prefix_caching needs it on"),
        (NATIVE, 1, "the engine's prefix caching is unknown, native_prefix_caching needs it on"),
        (NATIVE, "true", "the engine's prefix caching is unknown, native_prefix_caching needs it on"),
        (CONTROL, 0, "the engine's prefix caching is unknown, control needs it off"),
        (CONTROL, None, "the engine's prefix caching is unknown, control needs it off"),
        (CONTROL, UNKNOWN, "the engine's prefix caching is unknown, control needs it off"),
        (CONTROL, [], "the engine's prefix caching is unknown, control needs it off"),
    ],
)
def test_prefix_caching_is_on_in_the_native_arm_alone(arm, value, says):
    assert misfits(arm, changed("prefix_caching", value, arm)) == [says]


@pytest.mark.parametrize("arm", [CONTROL, NATIVE])
@pytest.mark.parametrize("value", [CONNECTOR, UNKNOWN, {}, "", False, "unknown"])
def test_a_connector_belongs_to_no_other_arm(arm, value):
    says = f"the engine does not say that it has no KV connector, which {arm} needs"
    assert misfits(arm, changed("connector", value, arm)) == [says]


@pytest.mark.parametrize("part", ["connector", "kv_transfer"])
@pytest.mark.parametrize("value", [None, UNKNOWN, "LMCacheConnectorV1", [], True])
def test_a_connector_that_is_not_there_is_no_lmcache(part, value):
    assert misfits(LMCACHE, changed(part, value)) == [NOT_LOADED]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("connector.class", "LMCacheConnectorV1Impl"),
        ("connector.class", UNKNOWN),
        ("connector.class", None),
        ("connector.module", "lmcache.integration.vllm.lmcache_connector_v1"),
        ("connector.module", UNKNOWN),
        ("connector.module", f"evil.{MODULE}"),
        ("connector.file", UNKNOWN),
        ("connector.file", None),
        ("connector.file", ""),
        ("connector.file", f"{FILE}c"),
        ("connector.file", "/elsewhere/lmcache_connector.py"),
        ("connector.file", FILE.replace("/vllm/", "/notvllm/")),
        ("connector.file", f"{MODULE}.py"),
        ("kv_transfer.kv_connector_module_path", "my.module"),
        ("kv_transfer.kv_connector_module_path", ""),
        ("kv_transfer.kv_connector_module_path", UNKNOWN),
    ],
)
def test_only_the_engines_own_connector_is_under_test(path, value):
    assert misfits(LMCACHE, changed(path, value)) == [NOT_ITS_OWN]


@pytest.mark.parametrize("file", [FILE.replace("/", "\\"), FILE.removeprefix("/"), FILE[FILE.index("vllm/") :]])
def test_a_file_is_the_engines_own_however_its_path_is_written(file):
    assert misfits(LMCACHE, changed("connector.file", file)) == []


@pytest.mark.parametrize("value", ["recompute", None, UNKNOWN, "FAIL", ""])
def test_a_failed_load_must_end_the_request(value):
    says = "a failed load would be recomputed silently: kv_load_failure_policy is not fail"
    assert misfits(LMCACHE, changed("kv_transfer.kv_load_failure_policy", value)) == [says]


@pytest.mark.parametrize("value", [{"lmcache.chunk_size": 16}, None, UNKNOWN, [], ""])
def test_extra_configuration_could_override_what_was_checked(value):
    says = "the connector's extra configuration is not empty, it could override the checked settings"
    assert misfits(LMCACHE, changed("kv_transfer.kv_connector_extra_config", value)) == [says]


@pytest.mark.parametrize("value", [True, None, 0, "", "no", UNKNOWN])
def test_lmcache_must_say_that_it_initialised(value):
    facts = changed("connector.lmcache.init_failed", value)
    facts["connector"]["lmcache"]["init_failed_reason"] = "no GPU"
    assert misfits(LMCACHE, facts) == [NOT_INITIALISED.format("no GPU")]


@pytest.mark.parametrize("value", [None, UNKNOWN, "fine", []])
def test_lmcache_that_is_not_there_did_not_initialise(value):
    assert misfits(LMCACHE, changed("connector.lmcache", value)) == [NOT_INITIALISED.format("it does not say")]


def test_every_misfit_is_said():
    facts = changed("prefix_caching", value=True)
    facts["connector"] |= {"class": "Other", "lmcache": None}
    facts["kv_transfer"] = {}
    facts["kv_memory_cleared"] = False
    assert len(misfits(LMCACHE, facts)) == 6


@given(
    st.sampled_from(
        [
            "prefix_caching",
            "connector",
            "kv_transfer",
            "kv_memory_cleared",
            "connector.class",
            "connector.module",
            "connector.file",
            "connector.lmcache",
            "connector.lmcache.init_failed",
            "kv_transfer.kv_connector_module_path",
            "kv_transfer.kv_load_failure_policy",
            "kv_transfer.kv_connector_extra_config",
        ]
    ),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text()),
)
def test_no_other_value_of_any_fact_fits(path, value):
    place: object = EFFECTIVE[LMCACHE]
    for name in path.split("."):
        place = place[name]
    if type(value) is type(place) and value == place:
        return
    assert misfits(LMCACHE, changed(path, value))
