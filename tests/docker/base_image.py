"""A stand-in for Docker's official Python image, made without a registry: Debian's base and this machine's CPython."""

import subprocess
import sys
import tempfile
from pathlib import Path

from .daemon import Daemon

TAG = "python:3.11-slim-bookworm"
RELEASE = "bookworm"

# What the official image has of Debian, as far as CPython's own modules need it.
PACKAGES = (
    *("ca-certificates", "netbase", "tzdata", "libssl3", "libffi8", "libsqlite3-0", "zlib1g", "libbz2-1.0"),
    *("liblzma5", "libreadline8", "libncursesw6", "libuuid1", "libgdbm6", "libnsl2", "libexpat1"),
)
LEFT_OUT = ("lib/python3.11/test", "lib/python3.11/site-packages/*", "*/__pycache__", "lib/python3.11/config-*")


def import_base(daemon: Daemon) -> None:
    """Put the stand-in into the daemon under the official image's name."""
    with tempfile.TemporaryDirectory(prefix="kvverify-base-") as scratch:
        root = Path(scratch) / "root"
        _debian(root)
        _python(root)
        archive = Path(scratch) / "base.tar"
        _run("tar", "-C", root, "--numeric-owner", "-cf", archive, ".")
        done = daemon.command("import", "-c", "ENV LANG=C.UTF-8", "-c", 'CMD ["python3"]', archive, TAG)
        assert done.returncode == 0, done.stderr


def _debian(root: Path) -> None:
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    packages = f"--include={','.join(PACKAGES)}"
    _run("mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", packages, *excluded, RELEASE, root, _sources())
    for name in ("resolv.conf", "hostname"):
        (root / "etc" / name).unlink(missing_ok=True)


def _sources() -> Path:
    """Return the file in which this machine names Debian's package servers."""
    names = ("sources.list.d/debian.sources", "sources.list.d/debian.list", "sources.list")
    return next(path for path in (Path("/etc/apt") / name for name in names) if path.exists())


def _python(root: Path) -> None:
    """Copy the interpreter that runs the tests to /usr/local, where the official image has its own."""
    source, local = Path(sys.base_prefix), root / "usr" / "local"
    archive = root.parent / "python.tar"
    _run(
        "tar",
        "-C",
        source,
        *(f"--exclude={name}" for name in LEFT_OUT),
        "-cf",
        archive,
        "bin/python3.11",
        "lib",
        "include",
    )
    _run("tar", "-C", local, "-xf", archive)
    archive.unlink()
    for name in ("python", "python3"):
        (local / "bin" / name).symlink_to("python3.11")
    _run("chroot", root, "ldconfig")
    _run("chroot", root, "/usr/local/bin/python3.11", "-m", "ensurepip", "--default-pip")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
