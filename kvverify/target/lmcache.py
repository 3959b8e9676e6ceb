"""The target that is vLLM's in-tree LMCache connector, with native prefix caching off."""

from pathlib import Path

from kvverify.comparison.arms import LMCACHE
from kvverify.target.arm import Arm, EngineSettings
from kvverify.target.lmcache_settings import REFUSED, Settings
from kvverify.target.options import CONNECTOR


def lmcache_arm(settings: EngineSettings, config_file: Path, resolved: Settings) -> Arm:
    """The arm whose reuses LMCache must serve.

    A failed load ends the request with an error (``fail``) instead of a silent recomputation. The connector ignores
    ``cache_salt``, so that a probe's scope travels as an LMCache tag, which becomes part of every key
    (lmcache/utils.py, ``CacheEngineKey``).
    """
    return Arm(
        LMCACHE,
        settings,
        {
            "enable_prefix_caching": False,
            "kv_transfer_config": {
                "kv_connector": CONNECTOR,
                "kv_role": "kv_both",
                "kv_load_failure_policy": "fail",
            },
        },
        # The log is evidence: whether each reuse was retrieved in full stands only there.
        variables={"LMCACHE_CONFIG_FILE": str(config_file.resolve()), "LMCACHE_LOG_LEVEL": "INFO"},
        scope_tag="lmcache.tag.scope",
        connector_settings={name: resolved.values.get(name) for name in ("chunk_size", *REFUSED)},
    )
