"""Process groups: who is in one, and that ending one leaves nobody, however stubborn."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kvverify.engine.processes import end_group, living_members, wait_until_gone

ROOT = Path(__file__).resolve().parents[2]

Start = Callable[[str], "subprocess.Popen[bytes]"]

READY = "print('ready', flush=True); "
FOREVER = "import time; time.sleep(600)"
FAMILY = f"""
import os, subprocess, sys, time
for _ in range(2):
    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
{READY}time.sleep(600)
"""
ORPHANS = FAMILY.removesuffix("time.sleep(600)\n")
STUBBORN = f"""
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
{READY}time.sleep(600)
"""

ENGINE = f"""
import os, subprocess, sys, threading, time
from queue import SimpleQueue
from kvverify.engine.worker.__main__ import read_commands
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
threading.Thread(target=read_commands, args=(0, SimpleQueue()), daemon=True).start()
{READY}
sum(1 for _ in iter(int, 1))
"""
"""An engine's process that is busy computing, with a child, and listens for its parent's commands on stdin."""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code as the leader of a group of its own, and wait until it says that it is ready."""
    started = []

    def run(code: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stdin.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_group_has_its_leader_and_its_leaders_children(start):
    process = start(FAMILY)
    members = living_members(process.pid)
    assert process.pid in members
    assert len(members) == 3
    assert os.getpid() not in members


def test_other_groups_are_not_counted(start):
    one, other = start(READY + FOREVER), start(READY + FOREVER)
    assert living_members(one.pid) == [one.pid]
    assert living_members(other.pid) == [other.pid]


def test_children_that_outlive_their_leader_are_still_in_the_group(start):
    process = start(ORPHANS)
    process.wait()
    assert len(living_members(process.pid)) == 2
    assert not wait_until_gone(process.pid, 0.2)
    assert end_group(process.pid)
    assert living_members(process.pid) == []


def test_a_zombie_is_gone(start):
    process = start(READY)
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert living_members(process.pid) == []
    assert wait_until_gone(process.pid, 0)


def test_a_name_with_brackets_and_spaces_does_not_hide_a_process(start):
    name = "a) R 1 (b"
    process = start(f"import time; open('/proc/self/comm', 'w').write({name!r}); {READY}time.sleep(600)")
    assert Path(f"/proc/{process.pid}/comm").read_text().strip() == name
    assert living_members(process.pid) == [process.pid]


@pytest.mark.parametrize("code", [FAMILY, STUBBORN], ids=["family", "stubborn"])
def test_ending_a_group_ends_all_of_it(start, code):
    process = start(code)
    assert end_group(process.pid)
    assert living_members(process.pid) == []
    assert process.wait() == -signal.SIGKILL


def test_a_group_that_was_stopped_can_be_ended(start):
    process = start(FAMILY)
    os.killpg(process.pid, signal.SIGSTOP)
    assert end_group(process.pid)
    assert living_members(process.pid) == []


def test_ending_a_group_that_is_gone_is_no_error(start):
    process = start(READY)
    process.wait()
    assert end_group(process.pid)
    assert end_group(process.pid)


def test_waiting_gives_up_at_its_limit_and_sees_the_end_when_it_comes(start):
    process = start(READY + FOREVER)
    assert not wait_until_gone(process.pid, 0.1)
    process.kill()
    assert wait_until_gone(process.pid, 60)


def test_an_engines_process_ends_its_whole_group_when_its_parent_is_gone(start):
    process = start(ENGINE)
    assert len(living_members(process.pid)) == 2
    process.stdin.close()  # as the kernel does for a parent that was killed
    assert wait_until_gone(process.pid, 60)
    assert process.wait() == -signal.SIGKILL


def test_an_engines_process_goes_on_while_its_parent_is_there(start):
    process = start(ENGINE)
    process.stdin.write(b'{"message": "Start"}\n')
    process.stdin.flush()
    assert not wait_until_gone(process.pid, 0.3)
