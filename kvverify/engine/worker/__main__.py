"""Entry of an arm's process: ``python -m kvverify.engine.worker COMMANDS EVENTS`` (two inherited file descriptors).

Nothing of vllm is imported at module level: vLLM may spawn processes that import this module again.
"""

import os
import signal
import sys
import threading
from queue import SimpleQueue

from kvverify.engine.wire import Message, decode


def read_commands(descriptor: int, commands: "SimpleQueue[Message]") -> None:
    """Pass on each command; when the parent is gone, end this process group at once.

    The parent holds the only writing end, so end of file means that it died, however it died. Engine
    processes that outlive it would keep the GPU.
    """
    with os.fdopen(descriptor, "rb") as lines:
        for line in lines:
            commands.put(decode(line))
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Serve the parent's commands until Stop."""
    commands_in, events_out = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (commands_in, events_out):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the function takes it by place
    commands: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=read_commands, args=(commands_in, commands), daemon=True).start()

    from kvverify.engine.worker.serve import serve

    serve(commands, events_out)


if __name__ == "__main__":
    main()
