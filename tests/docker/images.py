"""The images that the tests run: the Dockerfile's cpu target, and one whose runs end as a test wants them to."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import base_image
from .daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
CPU = "kvverify:cpu"
SCRIPTED = "kvverify:scripted"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def build_cpu(daemon: Daemon) -> None:
    """Build the cpu target as a user does, but on the stand-in base."""
    if not daemon.client.images.list(base_image.TAG):
        base_image.import_base(daemon)
    with tempfile.TemporaryDirectory(prefix="kvverify-context-") as scratch:
        context = Path(scratch)
        _copy_checkout(context)
        _add_wheels(context / "wheels")
        done = daemon.command(
            *("build", "--network=host", "--target=cpu", f"--build-arg=CPU_BASE={base_image.TAG}"),
            *("--build-arg=REVISION=tests", f"--secret=id=ca,src={CERTIFICATES}", "--tag", CPU, context),
        )
    assert done.returncode == 0, done.stderr[-1500:]


def _copy_checkout(folder: Path) -> None:
    """Copy what git knows or would add, as it is now: the .dockerignore chooses from it as it does for a user."""
    listing = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, folder / name
        if source.is_symlink() or source.exists():  # a file removed but not yet committed is listed too
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def _add_wheels(folder: Path) -> None:
    """Lay torch's CPU wheel into the context where this machine has it; elsewhere the build fetches it."""
    folder.mkdir()
    for place in f"{os.environ.get('UV_FIND_LINKS', '')} {os.environ.get('PIP_FIND_LINKS', '')}".split():
        for wheel in Path(place).glob("torch-*+cpu-cp311-*.whl"):
            if not (folder / wheel.name).exists():
                shutil.copy2(wheel, folder / wheel.name)


_SCRIPT = """\
#!/bin/sh
# `run` leaves the report that the test prepared and ends as it says; `doctor --device cpu` saves the seconds in which
# it loads the engine. All else is kvverify itself.
set -eu
[ "$*" != "doctor --device cpu" ] || exit 0
[ "$1" = run ] || exec /usr/local/bin/kvverify-itself "$@"
printf '%s\\n' "$@" >/report/arguments
cat /mnt/model/output
[ ! -e /mnt/model/endless ] || sleep 600
[ ! -e /mnt/model/report.json ] || cp -r /mnt/model/report.json /mnt/model/report.evidence /report/
exit "$(cat /mnt/model/status)"
"""


def build_scripted(daemon: Daemon) -> None:
    """Build an image whose runs end at once as the model folder says, for outcomes that no engine gives on demand."""
    with tempfile.TemporaryDirectory(prefix="kvverify-context-") as scratch:
        script = Path(scratch) / "kvverify"
        script.write_text(_SCRIPT)
        script.chmod(0o755)
        (Path(scratch) / "Dockerfile").write_text(
            f"FROM {CPU}\nUSER root\nRUN mv /usr/local/bin/kvverify /usr/local/bin/kvverify-itself\n"
            "COPY kvverify /usr/local/bin/kvverify\nUSER 10001:10001\n"
        )
        done = daemon.command("build", "--network=host", "--tag", SCRIPTED, scratch)
    assert done.returncode == 0, done.stderr[-1500:]
