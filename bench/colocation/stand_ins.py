"""A service and a training of one tiny kernel each, through CUDA's driver API: what --smoke runs, where there is neither
torch nor a GPU. They show that the bench works; their numbers mean nothing."""
import ctypes
import hashlib

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry churn(.param .u64 cells_param, .param .u32 rounds_param) {
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [cells_param];
  ld.param.u32 %r1, [rounds_param];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mul.wide.u32 %rd2, %r5, 4;
  cvta.to.global.u64 %rd1, %rd1;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3];
AGAIN:
  mad.lo.u32 %r6, %r6, 1664525, 1013904223;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  st.global.u32 [%rd3], %r6;
  ret;
}
"""


class Gpu:
    """A device's primary context, current in the thread that makes this."""

    def __init__(self, device=0):
        self.cuda, self.context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.make_current()

    def tried(self, name, *arguments):
        """What the call returns, whatever it is."""
        return getattr(self.cuda, name)(*arguments)

    def call(self, name, *arguments):
        error = self.tried(name, *arguments)
        if error:
            raise SystemExit(f"{name}: error {error}")

    def make_current(self):
        self.call("cuCtxSetCurrent", self.context)

    def load(self, ptx, entry):
        """A kernel."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry)
        return function


class Program(Gpu):
    """`cells` numbers on the device, on which a launch makes `rounds` rounds each."""

    def __init__(self, blocks, rounds, device=0):
        super().__init__(device)
        self.blocks, self.threads = blocks, 32
        self.first = (ctypes.c_uint32 * (blocks * self.threads))(*range(blocks * self.threads))
        self.cells = (ctypes.c_uint32 * len(self.first))()
        self.function, self.memory, self.rounds = self.load(PTX, b"churn"), ctypes.c_uint64(), ctypes.c_uint32(rounds)
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(ctypes.sizeof(self.first)))
        self.reset()

    def reset(self):
        self.call("cuMemcpyHtoD_v2", self.memory, self.first, ctypes.c_size_t(ctypes.sizeof(self.first)))

    def launch(self):
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(self.memory), ctypes.addressof(self.rounds))
        self.call("cuLaunchKernel", self.function, self.blocks, 1, 1, self.threads, 1, 1, 0, None, pointers, None)

    def wait(self):
        self.call("cuCtxSynchronize")

    def result(self):
        self.call("cuMemcpyDtoH_v2", self.cells, self.memory, ctypes.c_size_t(ctypes.sizeof(self.cells)))
        return bytes(self.cells)

    def facts(self):
        return {"digest": hashlib.sha256(self.result()).hexdigest()[:16], "gpu_gib": 0.0}


class Service:
    def __init__(self):
        self.program = Program(2, 20)
        self.request(0)
        self.expected = self.program.result()
        self.facts = self.program.facts()

    def request(self, index, before_waiting=lambda: None):  # pylint: disable=unused-argument
        self.program.reset()
        self.program.launch()
        before_waiting()
        self.program.wait()

    def matches(self, index):  # pylint: disable=unused-argument
        return self.program.result() == self.expected


class Training:
    def __init__(self):
        self.program = Program(8, 100)
        self.program.launch()
        self.facts = self.program.facts()

    def step(self):
        self.program.launch()
        return self.program.wait


class TrainingOnGpus:
    """The same on several GPUs, each of which has the numbers of the one before it from the step before."""

    def __init__(self, num_gpus):
        self.programs = [Program(8, 100, device) for device in range(num_gpus)]
        for _ in range(2):
            self.step()()
        self.programs[0].make_current()
        self.facts = self.programs[0].facts()

    def step(self):
        size = ctypes.c_size_t(ctypes.sizeof(self.programs[0].first))
        for program, before in zip(self.programs, self.programs[-1:] + self.programs[:-1]):
            program.make_current()
            program.launch()
            before.make_current()
            before.wait()
            # Behind its own launch, and done before anybody writes there again: the results are to be the same each time.
            program.make_current()
            program.call("cuMemcpyPeerAsync", program.memory, program.context, before.memory, before.context, size,
                         None)
            program.wait()
        return self.wait

    def wait(self):
        for program in self.programs:
            program.make_current()
            program.wait()
