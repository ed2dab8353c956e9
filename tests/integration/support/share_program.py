"""A CUDA program that keeps the GPU busy: kernels of one length, waited for every so many. Words: rounds of a kernel's
loop, launches between waits, seconds. Says how many kernels a second it has had after a while."""
import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")

SPIN = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u32 rounds, .param .u64 out) {
  .reg .u32 %n, %x;
  .reg .u64 %a;
  .reg .pred %p;
  ld.param.u32 %n, [rounds];
  ld.param.u64 %a, [out];
  mov.u32 %x, 1;
again:
  mad.lo.u32 %x, %x, 1664525, 1013904223;
  sub.u32 %n, %n, 1;
  setp.ne.u32 %p, %n, 0;
  @%p bra again;
  st.global.u32 [%a], %x;
  ret;
}
\0"""


def checked(result):
    if result != 0:
        raise SystemExit(f"CUDA error {result}")


rounds, between, seconds = ctypes.c_uint32(int(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
checked(cuda.cuInit(0))
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
checked(cuda.cuCtxSetCurrent(context))
checked(cuda.cuModuleLoadData(ctypes.byref(module), SPIN))
checked(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
out = ctypes.c_uint64()
checked(cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(4)))
parameters = (ctypes.c_void_p * 2)(ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p),
                                   ctypes.cast(ctypes.byref(out), ctypes.c_void_p))


def work(limit):
    """Kernels until so many seconds are over, and how many those were."""
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < limit:
        for _ in range(between):
            checked(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None))
        checked(cuda.cuCtxSynchronize())
        count += between
    return count / (time.monotonic() - begun)


work(min(1.0, seconds / 2))
print(work(seconds), flush=True)
