"""A command in a pseudo-terminal."""

import os
import pty
import subprocess
import sys


def on_terminal(*args, module=True, **environment):
    """Exit status of a command and all that a terminal shows of it."""
    leader, follower = pty.openpty()
    command = [sys.executable, *(("-m", "cavalcade") if module else ()), *args]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"} | environment
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                chunk = os.read(leader, 4096)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            shown += chunk
        status = process.wait()
    os.close(leader)
    return status, shown.decode().replace("\r\n", "\n")
