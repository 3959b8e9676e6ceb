"""Where every command starts: nothing that goes wrong may end with status 1, which means a failed check.

Only the standard library is imported here, so that even a broken installation ends with 2.
"""

import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line; ends the process with 0, 1 or 2."""
    status: object = 2
    try:
        from kvverify.cli import main as run  # its own imports may fail

        run()
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:  # noqa: BLE001 - Python would end with 1
        with suppress(Exception):
            sys.stderr.write(f"kvverify: error: {type(error).__name__}: {error}\n")
    if status not in (0, 1):
        status = 2
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os._exit(2)  # what was to be read was not written
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(int(status))  # no exit handler or late signal may change it
