"""A program with a session: open_session.py [SOCKET [CLASS]], by default of TALLY_SOCKET and of no class that it says.

Prints the session's number, whether it is open, and the mode of the socket's directory; keeps it until its input ends.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.daemon_fixture import Session  # noqa: E402

path = sys.argv[1] if len(sys.argv) > 1 else os.environ["TALLY_SOCKET"]
session = Session(path, priority=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
print(session.id, session.is_open(), oct(os.stat(os.path.dirname(path)).st_mode), flush=True)
sys.stdin.read()
