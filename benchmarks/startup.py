"""Time of ``kvverify --help`` and ``import kvverify``: median of 11 fresh processes, in milliseconds."""

import statistics
import subprocess
import sys
import time


def main() -> None:
    for name, command in (
        ("import kvverify", [sys.executable, "-c", "import kvverify"]),
        ("kvverify --help", [sys.executable, "-m", "kvverify", "--help"]),
        ("python alone", [sys.executable, "-c", "pass"]),
    ):
        times = []
        for _ in range(11):
            began = time.monotonic()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times.append(time.monotonic() - began)
        print(f"{name:16} {statistics.median(times) * 1000:6.0f} ms")


if __name__ == "__main__":
    main()
