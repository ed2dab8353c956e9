"""What a running tallyd does, and hints to it. docs/python.md says more.

    import tally
    tally.status()             # which tallyd answers
    tally.sessions()           # the programs that you may see, one dict each
    tally.trace("trace.json")  # records for a few seconds, for ui.perfetto.dev
    tally.expect_work(400)     # my next kernel comes in 400 microseconds
"""
import ctypes
import json
import os
import shutil
import subprocess

__all__ = ["TallyError", "status", "sessions", "executors", "trace", "expect_work"]

_TIMEOUT_SECONDS = 60


class TallyError(RuntimeError):
    """tallyctl is not there, or tallyd has refused: one sentence that says what to do."""


def _tallyctl():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4, "bin", "tallyctl")
    named = os.environ.get("TALLYCTL")
    for path in (named, shutil.which("tallyctl"), beside if named is None else None):
        if path and os.access(path, os.X_OK):
            return path
    raise TallyError("there is no tallyctl in PATH: install Tally, or name it with TALLYCTL")


def _run(arguments, socket, seconds=_TIMEOUT_SECONDS):
    command = [_tallyctl(), *(["--socket", os.fspath(socket)] if socket is not None else []), *arguments]
    # tallyctl is no CUDA program: what tally-run has set for this process is not for it.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                timeout=seconds, check=False, text=True, encoding="utf-8", errors="replace")
    except subprocess.TimeoutExpired:
        raise TallyError(f"tallyctl has not answered in {seconds:.0f} s") from None
    except OSError as error:
        raise TallyError(f"cannot start '{command[0]}': {error.strerror}") from None
    if result.returncode != 0:
        raise TallyError(result.stderr.strip().removeprefix("tallyctl: ") or f"tallyctl ended with {result.returncode}")
    return result.stdout


def _json(command, socket):
    return json.loads(_run(["--json", command], socket))


def status(socket=None):
    """What `tallyctl --json version` prints: versions of tallyctl and of the tallyd that answers."""
    return _json("version", socket)


def sessions(socket=None):
    """What `tallyctl --json ps` prints: a list of dicts. Without being tallyd's administrator: your own."""
    return _json("ps", socket)


def executors(socket=None):
    """What `tallyctl --json executors` prints; likewise."""
    return _json("executors", socket)


def trace(path, seconds=5, socket=None):
    """Records what runs on the GPUs and who waits, into a file for ui.perfetto.dev; the path. Takes so long."""
    path = os.fspath(path)
    if path == "-":
        raise ValueError("a trace goes into a file")
    _run(["trace", f"--seconds={float(seconds)}", f"--output={path}"], socket, float(seconds) + 2 * _TIMEOUT_SECONDS)
    return path


def _find_expect_work():
    # Of what is loaded already: to load a libcuda.so.1 that the program has no use for would cost it a context.
    try:
        function = ctypes.CDLL(None).tally_expect_work
    except (AttributeError, OSError):
        function = None
        try:
            library = ctypes.CDLL("libcuda.so.1", mode=getattr(os, "RTLD_NOLOAD", 4) | getattr(os, "RTLD_LAZY", 1))
            function = library.tally_expect_work
        except (AttributeError, OSError):
            return None
    function.argtypes = [ctypes.c_ulong]
    function.restype = ctypes.c_int
    return function


def expect_work(microseconds):
    """Says that this program's next kernel comes in so many microseconds, so that best-effort work can make room.

    True: it was said to Tally. False: the program does not run under Tally, or has not loaded CUDA yet.
    """
    if not 0 <= microseconds <= 1_000_000:
        raise ValueError("microseconds must be from 0 to 1000000")
    global _expect_work  # looked for until it is there: CUDA may be loaded later
    if _expect_work is None:
        _expect_work = _find_expect_work()
    return _expect_work is not None and _expect_work(int(microseconds)) == 0


_expect_work = None
