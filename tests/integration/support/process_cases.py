"""Programs of process_test.py, one function each: run under tally-run as `process_cases.py CASE`, they say OK or raise."""
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

from cuda_driver import EXECUTOR_GONE, NOT_INITIALIZED, Cuda


def in_fork(function):
    """Exit status of a forked child that runs `function`; negative: the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(function())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_before_use():
    def use():
        cuda = Cuda()
        cuda.launch(5)
        return cuda.sum()

    assert in_fork(use) == 5
    assert in_fork(use) == 5
    assert use() == 5
    assert in_fork(lambda: Cuda().sum() + 1) == 99, "after use here a child may not"


def fork_after_use():
    cuda = Cuda()
    pinned = cuda.allocate_host(4096)
    ctypes.memset(pinned, 7, 4096)

    def try_everything():
        count, address, context = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        codes = {cuda.code("cuInit", 0), cuda.code("cuDeviceGetCount", ctypes.byref(count)),
                 cuda.code("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(100)),
                 cuda.code("cuCtxGetCurrent", ctypes.byref(context)), cuda.code("cuCtxSynchronize"),
                 cuda.code("cuCtxSetCurrent", cuda.context), cuda.code("cuMemFree_v2", cuda.word),
                 cuda.code("cuMemFreeHost", pinned), cuda.code("cuModuleLoadData", ctypes.byref(context), b"\0"),
                 cuda.code("cuStreamCreate", ctypes.byref(context), 0), cuda.code("cuEventCreate", ctypes.byref(context), 0)}
        return 40 if codes == {NOT_INITIALIZED} else 41

    def grandchild():
        return in_fork(try_everything) + 1

    def close_everything():
        os.closerange(3, 4096)
        return try_everything()

    for index, (child, status) in enumerate([(try_everything, 40), (grandchild, 41), (close_everything, 40), (lambda: 0, 0)]):
        cuda.launch(100)
        assert in_fork(child) == status, index
        cuda.launch(1)
    assert in_fork(lambda: os.abort()) == -signal.SIGABRT
    assert cuda.sum() == 4 * 101
    assert ctypes.string_at(pinned, 4096) == b"\7" * 4096


def child_outlives_its_parent():
    """The session is the parent's: it ends with it, whatever its children hold."""
    cuda = Cuda()
    cuda.launch()
    child = os.fork()
    if child != 0:
        print(child, flush=True)
    else:
        os.close(1)
        os.close(2)
        time.sleep(60)
        os._exit(0)


def exec_gives_a_new_program():
    cuda = Cuda()
    cuda.launch(2)
    for _ in range(3):
        run = subprocess.run([sys.executable, __file__, "use_once"], stdout=subprocess.PIPE, timeout=60, check=True)
        assert run.stdout == b"3\nOK\n", run.stdout
    # No descriptor of ours is inherited by a program that is started without close_fds.
    ours = {os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd")) if os.path.lexists(f"/proc/self/fd/{fd}")}
    listing = subprocess.run(["ls", "-l", "/proc/self/fd"], stdout=subprocess.PIPE, timeout=60, check=True, close_fds=False).stdout
    assert b"memfd" not in listing and listing.count(b"socket:") <= sum(name.startswith("socket:") for name in ours) - 1, listing
    assert cuda.sum() == 2
    os.execv(sys.executable, [sys.executable, __file__, "use_once"])


def use_once():
    cuda = Cuda()
    cuda.launch(3)
    print(cuda.sum(), flush=True)


def other_programs_are_left_alone():
    """The library is in every child's environment; programs that know nothing of CUDA are as they were."""
    assert "libcuda.so.1" in os.environ["LD_PRELOAD"]
    for command in (["true"], ["sh", "-c", "echo one | cat"], ["env"], ["ls", "/"], [sys.executable, "-c", "import os; os._exit(0)"]):
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        assert run.returncode == 0 and run.stderr == b"", (command, run)
    run = subprocess.run(["sh", "-c", "echo text; exit 3"], stdout=subprocess.PIPE, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (3, b"text\n")


def closes_all_descriptors():
    """As daemons do, and opens files of its own afterwards: one documented error, and not a byte into those files."""
    cuda = Cuda()
    cuda.launch()
    assert cuda.sum() == 1
    os.closerange(3, 4096)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
    codes = set()
    deadline = time.monotonic() + 30
    while codes != {EXECUTOR_GONE} and time.monotonic() < deadline:
        address = ctypes.c_void_p()
        codes = {cuda.code("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(4096)), cuda.code("cuCtxSynchronize")}
    assert codes == {EXECUTOR_GONE}, codes
    for left, right in pairs:
        for end in (left, right):
            end.setblocking(False)
            try:
                raise AssertionError(f"we wrote {end.recv(100)} into the program's own socket")
            except BlockingIOError:
                pass


def few_descriptors():
    """A limit that leaves one descriptor for each thread, which needs it for its channel and for every allocation, for a moment."""
    cuda = Cuda()
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + 40, highest + 1 + 40))
    held = [cuda.allocate_host(1 << 16) for _ in range(100)]

    def launch():
        cuda.make_current()
        for _ in range(10):
            cuda.launch()
        cuda.call("cuCtxSynchronize")

    on_threads(40, launch)
    assert cuda.sum() == 400
    for address in held:
        cuda.call("cuMemFreeHost", address)
    # With no descriptor left at all: an error, and everything that exists works on.
    fillers = []
    try:
        while True:
            fillers.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    address = ctypes.c_void_p()
    code = cuda.code("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(4096))
    assert code != 0, "an allocation needs a descriptor for a moment"
    cuda.launch()
    assert cuda.sum() == 401
    for fd in fillers:
        os.close(fd)
    cuda.call("cuMemFreeHost", cuda.allocate_host(4096))


def on_threads(count, function):
    failures = []

    def guarded():
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def many_threads_come_and_go():
    """Channels of ended threads are used again: 40 times 32 threads need 32 channels."""
    cuda = Cuda()
    threading.stack_size(128 << 10)

    def launch():
        cuda.make_current()
        cuda.launch()

    for _ in range(40):
        on_threads(32, launch)
    assert cuda.sum() == 40 * 32


def changes_its_user():
    """Drops its rights and its root directory after cuInit, as servers do, and goes on: new threads, new memory."""
    cuda = Cuda()
    cuda.launch()
    os.chroot("/var/empty" if os.path.isdir("/var/empty") else "/tmp")
    os.chdir("/")
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

    def launch():
        cuda.make_current()
        cuda.launch()
        cuda.call("cuMemFree_v2", cuda.allocate(1 << 20))
        cuda.call("cuMemFreeHost", cuda.allocate_host(1 << 16))

    on_threads(3, launch)
    assert cuda.sum() == 4


def never_looks_back():
    cuda = Cuda()
    cuda.allocate(1 << 20)
    for _ in range(1000):
        cuda.launch()
    os._exit(0)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("OK", flush=True)
