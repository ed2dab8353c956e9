"""When a request's work on the GPU begins and ends, by the GPU's own clock: kernels of one thread, launched before all else of the
request and after it, write %globaltimer to pinned memory. Through CUDA's driver API, in the current context; torch's is one.

Where a request is a CUDA graph they are its first and last node: launched one by one beside another program's launches, in one context, they
would have the GPU start all kernels of the graph later (docs/scheduling.md, Refreshing), which no service that only replays graphs meets.

The GPU's clock and the host's (CLOCK_MONOTONIC) differ by an offset that drifts. A launch at t0 that is complete at t1 ran
between the two, so each bounds the offset; many of them, made while nothing else runs, leave some microseconds. That is done before and
after a cell, and what is between is on a straight line.
"""
import ctypes
import time

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry stamp(.param .u64 place_param) {
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [place_param];
  mov.u64 %rd2, %globaltimer;
  st.global.u64 [%rd1], %rd2;
  ret;
}
"""
CALIBRATIONS = 200
PORTABLE_AND_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP


class Stamps:
    def __init__(self, most=1 << 17):
        self.cuda = ctypes.CDLL("libcuda.so.1")  # the one that the process has already: the driver's, or Tally's
        self.most = most
        module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), PTX)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"stamp")
        self._call("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(8 * (most + 2)), ctypes.c_uint(PORTABLE_AND_MAPPED))
        self.function = function
        self.stamps = (ctypes.c_uint64 * (most + 2)).from_address(memory.value)  # the last two are those of a graph
        self.is_captured = False
        self.place = ctypes.c_uint64()
        self.parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self.place))
        self.launches = self.cuda.cuLaunchKernel
        self.launches.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3

    def _call(self, name, *arguments):
        error = getattr(self.cuda, name)(*arguments)
        if error:
            raise SystemExit(f"{name}: error {error}")

    def _launch(self, place, stream=None):
        self.place.value = ctypes.addressof(self.stamps) + 8 * place
        error = self.launches(self.function, 1, 1, 1, 1, 1, 1, 0, stream, self.parameters, None)
        if error:
            raise SystemExit(f"cuLaunchKernel: error {error}")

    def around(self, run, stream):
        """run(), between two stamps on a stream that captures: from now on they come with what is captured."""
        self.is_captured = True
        self._launch(self.most, stream)
        result = run()
        self._launch(self.most + 1, stream)
        return result

    def begin(self, request):
        """In front of the request, on the default stream, which the services work on."""
        if not self.is_captured:
            self._launch(2 * request % self.most)

    def end(self, request):
        """Behind it, before it is waited for."""
        if not self.is_captured:
            self._launch((2 * request + 1) % self.most)

    def collect(self, request):
        """Once it was waited for."""
        if self.is_captured:
            place = 2 * request % self.most
            self.stamps[place:place + 2] = self.stamps[self.most:]

    def of(self, request):
        """When it began and when it ended: nanoseconds on the GPU's clock."""
        place = 2 * request % self.most
        return self.stamps[place], self.stamps[place + 1]

    def calibrate(self):
        """What to add to the GPU's clock to have the host's, in ns, when that was found, and how wrong it is at most."""
        least, most = -float("inf"), float("inf")
        for _ in range(CALIBRATIONS):
            begin = time.monotonic_ns()
            self._launch(0)
            self._call("cuCtxSynchronize")
            end = time.monotonic_ns()
            least, most = max(least, begin - self.stamps[0]), min(most, end - self.stamps[0])
        return {"at_ns": time.monotonic_ns(), "offset_ns": (least + most) // 2, "error_ns": (most - least) // 2}


def waits_us(asked_ns, began_ns, before, after):
    """From when each request was asked for until its first kernel ran; and how wrong these may be."""
    drift = (after["offset_ns"] - before["offset_ns"]) / max(after["at_ns"] - before["at_ns"], 1)
    found = [(stamp + before["offset_ns"] - asked + drift * (asked - before["at_ns"])) / 1e3 for asked, stamp in zip(asked_ns, began_ns)]
    return [round(wait, 1) for wait in found], round(max(abs(before["error_ns"]), abs(after["error_ns"])) / 1e3, 1)
