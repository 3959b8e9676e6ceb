"""Run kvverify's LMCache resolver once for each line on stdin, in a fork of one process that has imported LMCache.

Importing it takes seconds of computing, resolving takes none. Each fork has the environment, the arguments and the
output files that a process of its own would have, and runs the resolver's own ``main``.
"""

import json
import os
import sys
import traceback

import lmcache.v1.config  # noqa: F401 - what the forks share

from kvverify.target.lmcache_resolver import main


def child(request: dict) -> None:
    status = 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = request["argv"]
        main()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever ends a process of its own
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    process = os.fork()
    if process == 0:
        child(json.loads(line))
    _, ended = os.waitpid(process, 0)
    print(os.waitstatus_to_exitcode(ended), file=answers, flush=True)
