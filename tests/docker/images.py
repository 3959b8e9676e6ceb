"""The images that the tests run: the Dockerfile's cpu target, and one whose runs end as a test wants them to."""

import os
import shutil
import tempfile
from pathlib import Path

from . import base_image
from .daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
CPU = "kvverify:cpu"
SCRIPTED = "kvverify:scripted"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

_CONTEXT = (
    "LICENSE",
    "pyproject.toml",
    "kvverify",
    "schemas",
    "fixtures",
    "requirements",
    "scripts",
    "entrypoint",
    "Dockerfile",
)


def build_cpu(daemon: Daemon) -> None:
    """Build the cpu target as a user does, but on the stand-in base."""
    if not daemon.client.images.list(base_image.TAG):
        base_image.import_base(daemon)
    with tempfile.TemporaryDirectory(prefix="kvverify-context-") as scratch:
        context = Path(scratch)
        for name in (*_CONTEXT, ".dockerignore"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, context / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, context / name)
        _add_wheels(context / "wheels")
        done = daemon.command(
            *("build", "--network=host", "--target=cpu", f"--build-arg=CPU_BASE={base_image.TAG}"),
            *("--build-arg=REVISION=tests", f"--secret=id=ca,src={CERTIFICATES}", "--tag", CPU, context),
        )
    assert done.returncode == 0, done.stderr[-5000:]


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
    assert done.returncode == 0, done.stderr[-5000:]
