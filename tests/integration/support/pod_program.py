"""A CUDA program of a pod: it knows nothing of Tally. Says what CUDA answers. Words: what it is to do."""
import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")

# Writes where nothing is.
FAULT = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry fault() {
  .reg .u64 %a;
  mov.u64 %a, 64;
  st.global.u64 [%a], %a;
  ret;
}
\0"""


def checked(result):
    if result != 0:
        raise SystemExit(f"CUDA error {result}")


def allocate(size):
    """The result and the address."""
    address = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address


def copy(address):
    data = (ctypes.c_uint32 * 1024)()
    return cuda.cuMemcpyHtoD_v2(address, data, ctypes.sizeof(data)) or cuda.cuMemcpyDtoH_v2(data, address, ctypes.sizeof(data))


def memory(size):
    total = ctypes.c_size_t()
    checked(cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0))
    print(total.value, allocate(int(size))[0], allocate(4096)[0])


def fill(size):
    """All of it at once."""
    print(allocate(int(size))[0])


def storm(size):
    """Pieces until there is none, and then all back, five times. Says once that it holds something; at last what CUDA said."""
    said = False
    for _ in range(5):
        pieces, result = [], 0
        while result == 0:
            result, address = allocate(int(size))
            pieces += [address] if result == 0 else []
            if pieces and not said:
                print("holds", flush=True)
                said = True
        time.sleep(0.1)
        for address in pieces:
            checked(cuda.cuMemFree_v2(address))
    print(result)


def fault():
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    checked(cuda.cuModuleLoadData(ctypes.byref(module), FAULT))
    checked(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fault"))
    checked(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    print(cuda.cuCtxSynchronize())


def serve():
    """Requests until one fails: says that it began, and what the last one answered."""
    result, address = allocate(4096)
    checked(result)
    print("serving", flush=True)
    while result == 0:
        result = copy(address)
        time.sleep(0.001)
    print(result)


checked(cuda.cuInit(0))
context = ctypes.c_void_p()
checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
checked(cuda.cuCtxSetCurrent(context))
{"memory": memory, "fill": fill, "storm": storm, "fault": fault, "serve": serve}[sys.argv[1]](*sys.argv[2:])
