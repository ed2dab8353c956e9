#!/usr/bin/env python3
"""A program registers a file of a tmpfs as memory, makes it shorter and copies: does it end alone, with this driver, too?

usage: truncated_file.py [--driver cuda|sim] [--output FILE.md]

On the GPU the driver has pinned the file's pages, so that what the GPU does itself may still find them; what the
driver's threads touch is gone. Each way to touch such memory is one program, beside a neighbour in the same executor
that computes and compares all the time. Exit status 1 if the neighbour, its executor or a later program noticed.
"""
import argparse
import contextlib
import ctypes
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "bench/support"), str(HERE.parents[1] / "integration/support")]
import cuda_driver  # pylint: disable=wrong-import-position
import ways  # pylint: disable=wrong-import-position

SIZE, SMALL = 16 << 20, 512
PATIENCE_S = 120


class Culprit(cuda_driver.Cuda):
    """Has a file of a tmpfs registered at `host`, which `truncate` makes shorter."""

    def __init__(self):
        super().__init__()
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            self.file = os.dup(file.fileno())
        os.ftruncate(self.file, SIZE)
        self.map = mmap.mmap(self.file, SIZE)
        self.map.write(b"\1" * SIZE)
        self.host = ctypes.c_uint64(ctypes.addressof(ctypes.c_char.from_buffer(self.map)))
        self.call("cuMemHostRegister_v2", self.host, ctypes.c_size_t(SIZE), 0)
        self.device = self.allocate(SIZE)
        self.pinned = ctypes.c_uint64(self.allocate_host(SIZE).value)

    def truncate(self):
        os.ftruncate(self.file, 0)

    def copy(self, name, to, source, size=SIZE, *stream):
        return self.code(name, to, source, ctypes.c_size_t(size), *stream)

    def add_in_file(self):
        """A kernel that reads and writes the first word."""
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(self.word), self.host, 0)
        self.launch()
        return 0

    def copy_all_the_time(self):
        """It becomes shorter while copies are on their way."""
        timer = threading.Timer(0.2, self.truncate)
        timer.start()
        codes = [self.copy("cuMemcpyHtoDAsync_v2", self.device, self.host, SIZE, None) for _ in range(400)]
        timer.join()
        return max(codes)


TOUCH = {
    "copy to the device": lambda c: c.copy("cuMemcpyHtoD_v2", c.device, c.host),
    "small copy to the device": lambda c: c.copy("cuMemcpyHtoD_v2", c.device, c.host, SMALL),
    "small asynchronous copy to the device": lambda c: c.copy("cuMemcpyHtoDAsync_v2", c.device, c.host, SMALL, None),
    "copy from the device": lambda c: c.copy("cuMemcpyDtoH_v2", c.host, c.device),
    "small copy from the device": lambda c: c.copy("cuMemcpyDtoH_v2", c.host, c.device, SMALL),
    "copy to other host memory": lambda c: c.copy("cuMemcpyAsync", c.pinned, c.host, SIZE, None),
    "fill": lambda c: c.code("cuMemsetD8Async", c.host, 5, ctypes.c_size_t(SIZE), None),
    "kernel": Culprit.add_in_file,
    "nothing but giving it back": lambda c: c.code("cuMemHostUnregister", c.host),
    "while copies are on their way": Culprit.copy_all_the_time,
}


def be_culprit(way):
    """Prints what CUDA said of the touch, and of waiting for it."""
    culprit = Culprit()
    if way != "while copies are on their way":
        culprit.truncate()
    try:
        touched = TOUCH[way](culprit)
    except cuda_driver.CudaError as error:
        touched = error.code
    print(f"{touched}, {culprit.code('cuCtxSynchronize')}", flush=True)


class Neighbour:
    def __init__(self, daemon):
        script = str(HERE.parents[1] / "integration/support/neighbour.py")
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(daemon.command([sys.executable, script]), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline().strip()

    def works(self):
        """Whether another round of it is right. It has a limit of time: that of the whole script."""
        if self.said in ("ready", "right"):
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            self.said = self.process.stdout.readline().strip() or "no answer"
        return self.said == "right"

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def run_culprit(daemon, way, neighbour):
    """What it printed, or how it ended. The neighbour works meanwhile."""
    # pylint: disable-next=consider-using-with
    process = subprocess.Popen(daemon.command([sys.executable, str(HERE), "--culprit", way]), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    limit = threading.Timer(PATIENCE_S, process.kill)
    limit.start()
    while neighbour.works() and process.poll() is None:
        pass
    printed, complaint = process.communicate()
    limit.cancel()
    said = printed.strip() or (complaint.strip().splitlines() or [""])[-1]
    return said if process.returncode == 0 else f"{said} (status {process.returncode})".strip()


def table(daemon, neighbour):
    """Rows of the page, and whether all is as it should be."""
    rows = []
    assert neighbour.works(), neighbour.said
    executors = daemon.executors()
    is_good = len(executors) == 1  # else it is no neighbour
    for way in TOUCH:
        before = daemon.log_text().count("truncated a file")
        said = run_culprit(daemon, way, neighbour)
        neighbours = "right" if neighbour.works() else neighbour.said
        is_same = daemon.executors() == executors
        ended = "ended" if daemon.log_text().count("truncated a file") > before else "was left alone"
        rows.append(f"| {way} | {said} | {ended} | {neighbours} | {'the same' if is_same else 'ANOTHER'} |")
        print(rows[-1], flush=True)
        is_good = is_good and is_same and neighbours == "right"
        if not is_good:
            break
    later = Neighbour(daemon)
    is_good = later.works() and daemon.executors() == executors and is_good
    later.end()
    return rows, is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", choices=("cuda", "sim"), default="cuda")
    parser.add_argument("--output")
    parser.add_argument("--culprit", choices=TOUCH, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.culprit:
        be_culprit(arguments.culprit)
        return
    with ways.daemon(ways.find_root(), arguments.driver, env={"TALLY_LOG": "info"}) as daemon:
        neighbour = Neighbour(daemon)
        threading.Timer(PATIENCE_S * len(TOUCH), neighbour.process.kill).start()
        rows, is_good = table(daemon, neighbour)
        neighbour.end()
        log = daemon.log_text()
    if arguments.output:
        head = ["| what touches it | CUDA's answers: the touch, the wait | its session | the neighbour | the executor |",
                "|---|---|---|---|---|"]
        pathlib.Path(arguments.output).write_text("\n".join(head + rows) + "\n", encoding="utf-8")
    print("good: nobody else noticed" if is_good else "BAD: somebody else noticed\n" + log[-4000:], flush=True)
    os._exit(0 if is_good else 1)  # without waiting for the timer


if __name__ == "__main__":
    main()
