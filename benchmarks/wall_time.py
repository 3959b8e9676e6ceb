"""Wall time of ``kvverify run`` against a bare script that does the same generations, arm after arm.

    python benchmarks/wall_time.py [OPTIONS OF kvverify run, without --report]

Both start every engine anew and answer the same prompts as often. The bare script does nothing else: no evidence, no
isolation, no report. Prints both times in seconds and their ratio.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kvverify.cli import cli
from kvverify.preflight import Preflight, preflight
from kvverify.report.document import expected_answers
from kvverify.target.options import RunOptions


def main() -> None:
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(os.environ.get("KVVERIFY_BENCHMARK_REPORT", f"{folder}/report.json"))
        given = [*arguments, "--report", str(report)]
        checked = preflight(options_of(given), os.environ)
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "kvverify", "run", *given], stdout=sys.stderr, check=False)
        ours = time.monotonic() - began
        began = time.monotonic()
        preflight(options_of(given), os.environ)  # the bare script needs its prompts as well
        for arm in checked.arms:
            bare_arm(checked, arm)
        bare = time.monotonic() - began
    print(f"arms            {', '.join(arm.name for arm in checked.arms)}")
    print(f"kvverify run    {ours:7.1f} s (exit status {done.returncode})")
    print(f"bare script     {bare:7.1f} s")
    print(f"ratio           {ours / bare:7.2f}")


def options_of(arguments: list[str]) -> RunOptions:
    command = cli.commands["run"]
    given: dict[str, Any] = command.make_context("run", list(arguments)).params
    del given["dry_run"]
    return RunOptions(**given)


def bare_arm(checked: Preflight, arm: Any) -> None:
    """One arm's generations in a fresh process, started only when the last one has ended."""
    task = {
        "engine_arguments": arm.engine_arguments(),
        "sampling": arm.settings.sampling(),
        "prompts": [
            {"ids": list(probe.prompt_token_ids), "scope": probe.scope, "extra": arm.sampling_extra(probe.scope)}
            for probe in checked.plan.probes
            for _ in expected_answers(arm.name, probe.reuse_count)
        ],
    }
    script = Path(__file__).with_name("bare_arm.py")
    subprocess.run(
        [sys.executable, script],
        input=json.dumps(task),
        text=True,
        env=checked.variables | arm.variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


if __name__ == "__main__":
    main()
