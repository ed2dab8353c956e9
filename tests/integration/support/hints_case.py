"""Programs for hints_test.py, to be run under tally-run.

    hints_case.py serve       prints "port N"; each request of a line is answered with a line, after a kernel
    hints_case.py fork        the same, and a child made by fork receives, too
    hints_case.py work        best-effort: launches until it is killed
    hints_case.py lie         says all the time that its work is coming; it never comes
    hints_case.py expect      says it truly, twenty times
"""
import ctypes
import os
import socket
import sys
import time

from cuda_driver import Cuda

LEAD_S = 0.004


def one_kernel(cuda):
    cuda.launch()
    cuda.call("cuCtxSynchronize")


def serve(cuda, forks=False):
    listener = socket.create_server(("127.0.0.1", 0))
    one_kernel(cuda)
    if forks:
        ours, childs = socket.socketpair()
        if os.fork() == 0:
            while childs.recv(64) != b"end":
                childs.sendall(b"got")
            os._exit(0)
    print("port", listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    while True:
        request = connection.recv(4096)
        if not request:
            break
        time.sleep(LEAD_S)
        one_kernel(cuda)
        if forks:
            ours.sendall(b"work")
            ours.recv(64)
        connection.sendall(b"done\n")
    if forks:
        ours.sendall(b"end")
        print("child", os.wait()[1], flush=True)


def work(cuda):
    one_kernel(cuda)
    print("working", flush=True)
    while True:
        one_kernel(cuda)
        time.sleep(0.001)


def expect_work(microseconds):
    return ctypes.CDLL("libcuda.so.1").tally_expect_work(ctypes.c_ulong(microseconds))


def lie(cuda):
    one_kernel(cuda)
    print("lying", flush=True)
    while True:
        expect_work(250)


def expect(cuda):
    one_kernel(cuda)
    for _ in range(20):
        time.sleep(0.05)
        assert expect_work(int(LEAD_S * 1e6)) == 0
        time.sleep(LEAD_S)
        one_kernel(cuda)
    assert expect_work(1_000_001) == 22  # EINVAL
    print("said", cuda.sum(), flush=True)


if __name__ == "__main__":
    program = sys.argv[1]
    case = Cuda()
    if program in ("serve", "fork"):
        serve(case, program == "fork")
    else:
        {"work": work, "lie": lie, "expect": expect}[program](case)
