"""For programs whose subject is how a process ends: runs a function of theirs in a child interpreter.

    run = child_process.run("crash")             # in main(): exit status and standard output of the child
    for name, run in child_process.run_all(names): ...    # several at a time
    child_process.start(main, child)             # the program's last line: main(), or in the child child("crash")
"""
import concurrent.futures
import os
import subprocess
import sys

_VARIABLE = "TALLY_FRAMEWORKS_CHILD"


def run(name, **environment):
    run = subprocess.run([sys.executable, sys.argv[0]], stdout=subprocess.PIPE, timeout=100, check=False,
                         env={**os.environ, _VARIABLE: name, **environment})
    print(f"child '{name}': exit status {run.returncode}", flush=True)
    return run


def run_all(names):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return zip(names, pool.map(run, names))


def start(main, child):
    name = os.environ.get(_VARIABLE)
    if name:
        child(name)
    else:
        main()
