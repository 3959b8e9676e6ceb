"""What an arm's name promises: where its hits must come from, and which caches its engine may have."""

from collections.abc import Mapping
from typing import Any

from kvverify.comparison.facts import Tier

CONTROL = "control"
NATIVE = "native_prefix_caching"
LMCACHE = "lmcache_connector_v1"

TIERS: Mapping[str, Tier | None] = {CONTROL: None, NATIVE: "local", LMCACHE: "external"}
"""Every arm's name, and the tier that its reuses must be served from (None: the arm must reuse nothing)."""

# The connector has to be the engine's own: a class of that name from another module is something else.
_LMCACHE_CLASS = "LMCacheConnectorV1"
_IN_TREE = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"


def expected_arms(request: Mapping[str, Any]) -> list[str]:
    """Name the arms, in the order in which they run, that the options in ``request`` ask for.

    Reads ``kv_connector``, ``native_prefix_caching`` (None where it was not given: then on where there is no
    connector) and ``compare_native``. A connector that nobody supports asks for no target.
    """
    connector = request.get("kv_connector")
    native = request.get("native_prefix_caching")
    arms = [CONTROL]
    if connector == _LMCACHE_CLASS:
        arms.append(LMCACHE)
    if request.get("compare_native") is True or (connector == "none" and native is not False):
        arms.append(NATIVE)
    return arms


def misfits(name: str, effective: Mapping[str, Any] | None) -> list[str]:
    """Say where an engine's own account of its caches is not what the arm's name promises; empty where it is.

    ``effective`` is the arm's configuration as the engine resolved it, None where it is unknown: then nothing
    shows that the arm tested what its name says.
    """
    if effective is None:
        return ["the engine's effective configuration is unknown"]
    found = []
    caching = effective.get("prefix_caching")
    if caching is not (name == NATIVE):
        found.append(f"the engine's prefix caching is {_word(caching)}, {name} needs it {_word(name == NATIVE)}")
    connector = effective.get("connector", "unknown")
    if name == LMCACHE:
        found += _lmcache_misfits(connector, effective.get("kv_transfer"))
        if effective.get("kv_memory_cleared") is not True:
            found.append("the engine's KV memory was not cleared between answers, so that they prove no reload")
    elif connector is not None:
        found.append(f"the engine does not say that it has no KV connector, which {name} needs")
    return found


def _lmcache_misfits(connector: object, transfer: object) -> list[str]:
    """Say why what the worker loaded is not the engine's own connector, or not one that works."""
    if not isinstance(connector, Mapping) or not isinstance(transfer, Mapping):
        return [f"the engine does not say that it loaded {_LMCACHE_CLASS}, which {LMCACHE} needs"]
    found = []
    file = f"/{connector.get('file')}".replace("\\", "/")
    in_tree = connector.get("module") == _IN_TREE and file.endswith(f"/{_IN_TREE.replace('.', '/')}.py")
    module_path = transfer.get("kv_connector_module_path", "unknown")
    if connector.get("class") != _LMCACHE_CLASS or not in_tree or module_path is not None:
        found.append(f"the engine did not load its own {_LMCACHE_CLASS}, which {LMCACHE} needs")
    if transfer.get("kv_load_failure_policy") != "fail":
        found.append("a failed load would be recomputed silently: kv_load_failure_policy is not fail")
    if transfer.get("kv_connector_extra_config") != {}:
        found.append("the connector's extra configuration is not empty, it could override the checked settings")
    inner = connector.get("lmcache")
    if not isinstance(inner, Mapping) or inner.get("init_failed") is not False:
        # It fails open: the engine runs on and recomputes (lmcache/v1/manager.py).
        reason = inner.get("init_failed_reason") if isinstance(inner, Mapping) else "it does not say"
        found.append(f"LMCache did not initialise, so that nothing would be reused ({reason})")
    return found


def _word(switch: object) -> str:
    return {True: "on", False: "off"}.get(switch, "unknown") if isinstance(switch, bool) else "unknown"
