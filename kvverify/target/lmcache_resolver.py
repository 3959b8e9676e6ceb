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
    """Print the effective settings, which of them file and environment set, and every key that has an effect."""
    result = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LMCache logs to stdout
    from lmcache.v1 import config as lmcache_config

    # Private names, the same in every supported release (runtimes.py): no public one tells keys, aliases and sources.
    definitions, aliases = lmcache_config._CONFIG_DEFINITIONS, lmcache_config._CONFIG_ALIASES  # noqa: SLF001
    settings = lmcache_config.LMCacheEngineConfig.from_file(sys.argv[1])
    in_file = set(settings._user_set_keys)  # noqa: SLF001 - said above
    settings._user_set_keys.clear()  # noqa: SLF001 - said above
    invalid = None
    try:
        settings.update_config_from_env()  # adds the names that it took: values that it cannot read it leaves out
    except (AssertionError, TypeError, ValueError) as error:  # it validates last, when all values are in place
        invalid = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    in_environment = set(settings._user_set_keys)  # noqa: SLF001 - said above
    # LMCache follows an alias only where it lists it as deprecated, too. It ignores the others with a warning.
    followed = [old for old in aliases if old in lmcache_config._DEPRECATED_CONFIGS]  # noqa: SLF001 - said above
    json.dump(
        {
            "settings": {name: _json(getattr(settings, name)) for name in definitions},
            "file": sorted(in_file),
            "environment": sorted(in_environment),
            "keys": [*definitions, *followed],
            "invalid": invalid,
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
