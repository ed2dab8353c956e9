"""As much of the CUDA driver API, by ctypes, as a test of processes needs. For scripts that run under tally-run."""
import ctypes

PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 word, .param .u32 value) {
  .reg .b32 %r<3>;
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [word];
  ld.param.u32 %r1, [value];
  atom.global.add.u32 %r2, [%d1], %r1;
  ret;
}
\0"""
OUT_OF_MEMORY, NOT_INITIALIZED, EXECUTOR_GONE = 2, 3, 46


class CudaError(Exception):
    def __init__(self, call, code):
        super().__init__(f"{call}: CUDA error {code}")
        self.code = code


class Cuda:
    """A device's primary context, current in the thread that makes this; one word of its memory and a kernel for it."""

    def __init__(self, device=0):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.make_current()
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"add")
        self.word = self.allocate(4)
        self.call("cuMemsetD32_v2", self.word, 0, 1)

    def code(self, name, *arguments):
        """What the call returns, whatever it is."""
        return getattr(self.library, name)(*arguments)

    def call(self, name, *arguments):
        result = self.code(name, *arguments)
        if result != 0:
            raise CudaError(name, result)

    def make_current(self):
        self.call("cuCtxSetCurrent", self.context)

    def allocate(self, size_bytes):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return address

    def allocate_host(self, size_bytes):
        address = ctypes.c_void_p()
        self.call("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return address

    def launch(self, value=1):
        amount = ctypes.c_uint32(value)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self.word), ctypes.addressof(amount))
        self.call("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)

    def sum(self):
        value = ctypes.c_uint32()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), self.word, ctypes.c_size_t(4))
        return value.value
