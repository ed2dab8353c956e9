"""Programs for tests of scheduling, to be run under tally-run: launches without end, held ones that are waited for, copies."""
import ctypes
import os
import sys
import time

from cuda_driver import Cuda

BLOCKS = 200  # so many fill the GPU, as the software driver describes it

# Threads that count to `loops` and then add to the word.
SPIN = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 word, .param .u32 loops) {
  .reg .b32 %r<4>;
  .reg .b64 %d<2>;
  .reg .pred %p<2>;
  ld.param.u64 %d1, [word];
  ld.param.u32 %r1, [loops];
  mov.u32 %r2, 0;
AGAIN:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra AGAIN;
  atom.global.add.u32 %r3, [%d1], 1;
  ret;
}
\0"""


class Spinner(Cuda):
    def __init__(self, loops, device=0):
        super().__init__(int(device))
        module, self.spin_kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), SPIN)
        self.call("cuModuleGetFunction", ctypes.byref(self.spin_kernel), module, b"spin")
        self.loops = ctypes.c_uint32(loops)
        self.spin_parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self.word), ctypes.addressof(self.loops))

    def spin(self):
        self.call("cuLaunchKernel", self.spin_kernel, BLOCKS, 1, 1, 1, 1, 1, 0, None, self.spin_parameters, None)


def forever(loops, device=0):
    """Always something queued, never more than a few hundred launches."""
    spinner = Spinner(int(loops), device)
    while True:
        for _ in range(100):
            spinner.spin()
        spinner.sum()


def busy(loops, device=0):
    """Never without something on the GPU: while half of what is queued is waited for the other half is there."""
    spinner = Spinner(int(loops), device)
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        spinner.call("cuEventCreate", ctypes.byref(event), 0)
    while True:
        for event in events:
            for _ in range(150):  # so that a process that waits long for a processor has something there, too
                spinner.spin()
            spinner.call("cuEventSynchronize", event)
            spinner.call("cuEventRecord", event, None)


def requests(loops, pause_ms="0", device=0):
    """Each launch is waited for, and followed by a pause."""
    spinner = Spinner(int(loops), device)
    while True:
        spinner.spin()
        spinner.call("cuStreamSynchronize", None)
        time.sleep(int(pause_ms) / 1000)


def endless():
    """A kernel that takes minutes; says when it was launched."""
    spinner = Spinner(2**32 - 1)
    spinner.spin()
    print("launched", flush=True)
    time.sleep(100)


def one_after_another(count, loops):
    """Waits for each launch, copies large and small, fills: right results, at last."""
    spinner = Spinner(int(loops))
    size_bytes = 40 << 20  # more than one piece
    host, device, other = (spinner.allocate_host(size_bytes), spinner.allocate(size_bytes),
                           spinner.allocate(size_bytes))
    for i in range(int(count)):
        spinner.spin()
        ctypes.memset(host, i + 1, size_bytes)
        spinner.call("cuMemcpyHtoDAsync_v2", device, host, ctypes.c_size_t(size_bytes), None)
        spinner.call("cuMemcpyDtoDAsync_v2", other, device, ctypes.c_size_t(size_bytes), None)
        spinner.call("cuMemsetD8Async", device, 0, ctypes.c_size_t(size_bytes), None)
        spinner.call("cuStreamSynchronize", None)
        ctypes.memset(host, 0, size_bytes)
        spinner.call("cuMemcpyDtoHAsync_v2", host, other, ctypes.c_size_t(size_bytes), None)
        spinner.call("cuStreamSynchronize", None)
        if ctypes.string_at(host, size_bytes) != bytes([i + 1]) * size_bytes:
            sys.exit("a copy in pieces is wrong")
    if spinner.sum() != int(count) * BLOCKS:
        sys.exit("a launch was lost")
    print("OK")


def fills(count, loops):
    """Behind each launch a fill, and a copy of it to a place of its own; nothing is waited for until the end."""
    spinner, chunk, count = Spinner(int(loops)), 4099, int(count)
    device, other, host = spinner.allocate(chunk), spinner.allocate(chunk * count), spinner.allocate_host(chunk * count)
    for i in range(count):
        spinner.spin()
        spinner.call("cuMemsetD8Async", device, i % 250 + 1, ctypes.c_size_t(chunk), None)
        spinner.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(other.value + i * chunk), device,
                     ctypes.c_size_t(chunk), None)
    spinner.call("cuMemcpyDtoHAsync_v2", host, other, ctypes.c_size_t(chunk * count), None)
    if spinner.sum() != count * BLOCKS:
        sys.exit("a launch was lost")
    if ctypes.string_at(host, chunk * count) != b"".join(bytes([i % 250 + 1]) * chunk for i in range(count)):
        sys.exit("a fill or a copy is wrong, or came too soon or too late")
    print("OK")


def many(count, loops):
    """All of them before the first is waited for."""
    spinner = Spinner(int(loops))
    for _ in range(int(count)):
        spinner.spin()
    if spinner.sum() != int(count) * BLOCKS:
        sys.exit("a launch was lost")
    print("OK")


def copy_once(path, size_bytes):
    """Copies up and down once `path` exists; `path` + ".ready" says that it waits for that, ".done" that the result is
    right. Stays for a while."""
    cuda = Cuda()
    size = ctypes.c_size_t(int(size_bytes))
    source, target, device = cuda.allocate_host(size.value), cuda.allocate_host(size.value), cuda.allocate(size.value)
    ctypes.memset(source, 7, size.value)
    cuda.call("cuStreamSynchronize", None)
    open(path + ".ready", "w").close()
    while not os.path.exists(path):
        time.sleep(0.01)
    cuda.call("cuMemcpyHtoDAsync_v2", device, source, size, None)
    cuda.call("cuMemcpyDtoHAsync_v2", target, device, size, None)
    cuda.call("cuStreamSynchronize", None)
    if ctypes.string_at(target, size.value) != b"\7" * size.value:
        sys.exit("a copy is wrong")
    open(path + ".done", "w").close()
    time.sleep(100)


if __name__ == "__main__":
    {"forever": forever, "busy": busy, "requests": requests, "endless": endless, "one_after_another": one_after_another,
     "fills": fills, "many": many, "copy_once": copy_once}[sys.argv[1]](*sys.argv[2:])
