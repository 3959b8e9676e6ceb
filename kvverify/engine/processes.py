"""Process groups: is anything of one left, and ending it."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def living_members(group: int) -> list[int]:
    """Process IDs of the group that still run (zombies hold no memory and no device, so they do not count)."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (comm) state ppid pgrp ...; comm may hold anything, so split after its closing parenthesis
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # ended while we looked
        if int(pgrp) == group and state not in "ZX":
            members.append(int(stat.parent.name))
    return members


def wait_until_gone(group: int, seconds: float) -> bool:
    """Whether the group has no living member within ``seconds``."""
    deadline = time.monotonic() + seconds
    while living_members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def end_group(group: int, seconds: float = 10.0) -> bool:
    """Kill every member of the group; whether all were gone within ``seconds``."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return wait_until_gone(group, seconds)
