"""``kvverify`` with LMCache allowed on the CPU engine: what the product itself refuses, since LMCache has no CPU path.

Run as a script with the product's arguments; the tests put the stand-in for LMCache's transfer on PYTHONPATH beside it.
"""

import dataclasses

from kvverify.comparison.arms import LMCACHE
from kvverify.target import runtimes

if __name__ == "__main__":
    runtimes.RUNTIMES = tuple(
        dataclasses.replace(runtime, arms=runtime.arms | {LMCACHE}) for runtime in runtimes.RUNTIMES
    )
    from kvverify.cli import main

    main()
