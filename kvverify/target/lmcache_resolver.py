"""Resolve an LMCache configuration in a process of its own: ``python -m kvverify.target.lmcache_resolver FILE``.

LMCache's own loader does it, so that what is found is what the engine will find: the file's settings, then the
``LMCACHE_*`` environment (lmcache/integration/vllm/utils.py, ``lmcache_get_or_create_config``). It imports torch, which
kvverify's own process never does. Prints one JSON object.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Print the effective settings, which of them the environment set, and every key that LMCache knows."""
    result = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LMCache logs to stdout
    from lmcache.v1 import config as lmcache_config

    # Private names, the same in every supported release (runtimes.py): there is no public list of keys and aliases.
    definitions, aliases = lmcache_config._CONFIG_DEFINITIONS, lmcache_config._CONFIG_ALIASES  # noqa: SLF001
    settings = lmcache_config.LMCacheEngineConfig.from_file(sys.argv[1])
    settings.update_config_from_env()
    names = [*definitions, *aliases]
    from_environment = {aliases.get(name, name) for name in names if f"LMCACHE_{name.upper()}" in os.environ}
    json.dump(
        {
            "settings": {name: _json(getattr(settings, name)) for name in definitions},
            "environment": sorted(from_environment),
            "keys": names,
            "aliases": dict(aliases),
        },
        result,
    )
    result.close()


def _json(value: object) -> object:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return str(value)


if __name__ == "__main__":
    if not Path(sys.argv[1]).is_file():
        sys.exit(f"{sys.argv[1]} is no file")
    main()
