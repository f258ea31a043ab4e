"""The server beside a training: `python -m cavalcade.watch FOLDER SOCKET`, started by `serve.beside`."""

import os
import socket
import sys
from pathlib import Path

from cavalcade.watch.serve import end_with_parent, run_server

if __name__ == "__main__":
    end_with_parent()
    os.nice(10)
    run_server(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
