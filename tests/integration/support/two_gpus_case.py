"""Programs with two GPUs, for two_gpus_test.py, to be run under tally-run. Each says OK if its results are right."""
import ctypes
import sys

from cuda_driver import OUT_OF_MEMORY, Cuda, CudaError
from scheduling_case import BLOCKS, Spinner

# One thread: counts itself in and waits until as many have come as are expected.
MEET = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry meet(.param .u64 word, .param .u32 expected) {
  .reg .b32 %r<4>;
  .reg .b64 %d<2>;
  .reg .pred %p<2>;
  ld.param.u64 %d1, [word];
  ld.param.u32 %r1, [expected];
  atom.sys.global.add.u32 %r2, [%d1], 1;
AGAIN:
  ld.volatile.global.u32 %r3, [%d1];
  setp.lt.u32 %p1, %r3, %r1;
  @%p1 bra AGAIN;
  ret;
}
\0"""


def event_on(gpu):
    event = ctypes.c_void_p()
    gpu.make_current()
    gpu.call("cuEventCreate", ctypes.byref(event), 2)
    return event


def stream_on(gpu):
    """One that does not wait for the legacy stream, but for what that has so far: the fill that makes the GPU's word zero."""
    stream, filled = ctypes.c_void_p(), event_on(gpu)
    gpu.call("cuStreamCreate", ctypes.byref(stream), 1)
    gpu.call("cuEventRecord", filled, None)
    gpu.call("cuStreamWaitEvent", stream, filled, 0)
    return stream


def add(gpu, stream):
    one = ctypes.c_uint32(1)
    parameters = (ctypes.c_void_p * 2)(ctypes.addressof(gpu.word), ctypes.addressof(one))
    gpu.call("cuLaunchKernel", gpu.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)


def exchange(steps):
    """One number goes to and fro between the GPUs; each adds three. What must come first say events alone."""
    first, second = Cuda(0), Cuda(1)
    streams = {gpu: stream_on(gpu) for gpu in (first, second)}
    there, back = event_on(first), event_on(second)
    for _ in range(int(steps)):
        first.make_current()
        first.call("cuStreamWaitEvent", streams[first], back, 0)
        for _ in range(3):
            add(first, streams[first])
        first.call("cuEventRecord", there, streams[first])
        second.make_current()
        second.call("cuStreamWaitEvent", streams[second], there, 0)
        copy = lambda to, source: second.call("cuMemcpyPeerAsync", to.word, to.context, source.word, source.context,
                                              ctypes.c_size_t(4), streams[second])
        copy(second, first)
        for _ in range(3):
            add(second, streams[second])
        copy(first, second)
        second.call("cuEventRecord", back, streams[second])
    second.call("cuStreamSynchronize", streams[second])
    first.make_current()
    if first.sum() != 6 * int(steps):
        sys.exit(f"{first.sum()} instead of {6 * int(steps)}")
    print("OK")


def both(steps, loops):
    """A training: in each step both GPUs work, and both wait for the other's step before. At most 50 are ahead."""
    gpus = [Spinner(int(loops), device) for device in (0, 1)]
    events = [event_on(gpu) for gpu in gpus]
    for step in range(int(steps)):
        for gpu in gpus:
            gpu.make_current()
            if step % 50 == 0:
                gpu.call("cuStreamSynchronize", None)
            for event in events:
                gpu.call("cuStreamWaitEvent", None, event, 0)
            gpu.spin()
        for gpu, event in zip(gpus, events):
            gpu.make_current()
            gpu.call("cuEventRecord", event, None)
    for gpu in gpus:
        gpu.make_current()
        if gpu.sum() != int(steps) * BLOCKS:
            sys.exit("a launch was lost")
    print("OK")


def collective(steps):
    """Kernels of two GPUs that wait for one another, as NCCL's do."""
    gpus = [Cuda(device) for device in (0, 1)]
    word = gpus[0].allocate_host(4)
    ctypes.memset(word, 0, 4)
    kernels = []
    for gpu in gpus:
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.make_current()
        gpu.call("cuModuleLoadData", ctypes.byref(module), MEET)
        gpu.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"meet")
        kernels.append(kernel)
    address = ctypes.c_uint64(word.value)
    for step in range(1, int(steps) + 1):
        expected = ctypes.c_uint32(2 * step)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(expected))
        for gpu, kernel in zip(gpus, kernels):
            gpu.make_current()
            gpu.call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
        for gpu in gpus:
            gpu.make_current()
            gpu.launch()
    for gpu in gpus:
        gpu.make_current()
        if gpu.sum() != int(steps):
            sys.exit("a launch was lost")
    print("OK")


def graph(launches, loops, device):
    """A graph of three kernels, launched again and again on one GPU."""
    gpu = Spinner(int(loops), device)
    stream, captured, executable = stream_on(gpu), ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call("cuStreamBeginCapture_v2", stream, 2)
    for _ in range(3):
        gpu.call("cuLaunchKernel", gpu.spin_kernel, BLOCKS, 1, 1, 1, 1, 1, 0, stream, gpu.spin_parameters, None)
    gpu.call("cuStreamEndCapture", stream, ctypes.byref(captured))
    gpu.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), captured, ctypes.c_uint64(0))
    for _ in range(int(launches)):
        gpu.call("cuGraphLaunch", executable, stream)
    gpu.call("cuStreamSynchronize", stream)
    if gpu.sum() != 3 * int(launches) * BLOCKS:
        sys.exit("a launch was lost")
    print("OK")


def fill(size_bytes):
    """How many pieces of memory of that size there are on the second GPU, and then on the first."""
    counts = []
    for device in (1, 0):
        gpu = Cuda(device)
        counts.append(0)
        try:
            while True:
                gpu.allocate(int(size_bytes))
                counts[-1] += 1
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
    print(*counts, flush=True)


if __name__ == "__main__":
    PROGRAMS = {"exchange": exchange, "both": both, "collective": collective, "graph": graph, "fill": fill}
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
