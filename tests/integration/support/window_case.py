"""Programs for window_test.py, to be run under tally-run: small kernels in independent chains of one stream."""
import ctypes
import sys
import time

from cuda_driver import Cuda

CHAINS, WORDS = 6, 32
MASK = 2**32 - 1

# words[tid] = words[tid] * factor + tid; out[tid] += in[tid]; the first again, by volatile accesses; and one that
# takes few threads only.
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry advance(.param .u64 words, .param .u32 factor) {
  .reg .b32 %r<4>;
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [words];
  ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x;
  mad.wide.u32 %d2, %r2, 4, %d1;
  ld.global.u32 %r3, [%d2];
  mad.lo.u32 %r3, %r3, %r1, %r2;
  st.global.u32 [%d2], %r3;
  ret;
}
.visible .entry gather(.param .u64 out, .param .u64 in) {
  .reg .b32 %r<4>;
  .reg .b64 %d<5>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [in];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d3, %r1, 4, %d1;
  mad.wide.u32 %d4, %r1, 4, %d2;
  ld.global.u32 %r2, [%d3];
  ld.global.u32 %r3, [%d4];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%d3], %r2;
  ret;
}
.visible .entry watched(.param .u64 words, .param .u32 factor) {
  .reg .b32 %r<4>;
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [words];
  ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x;
  mad.wide.u32 %d2, %r2, 4, %d1;
  ld.volatile.global.u32 %r3, [%d2];
  mad.lo.u32 %r3, %r3, %r1, %r2;
  st.volatile.global.u32 [%d2], %r3;
  ret;
}
.visible .entry few(.param .u64 words) .maxntid 16, 1, 1 {
  ret;
}
\0"""


class Segment(ctypes.Structure):
    """As include/tally/segments.h has it."""
    _fields_ = [("address", ctypes.c_void_p), ("row_bytes", ctypes.c_size_t), ("rows", ctypes.c_size_t),
                ("pitch", ctypes.c_size_t)]


class Chains(Cuda):
    def __init__(self):
        super().__init__()
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.kernels = {}
        for name in (b"advance", b"gather", b"watched", b"few"):
            self.kernels[name.decode()] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(self.kernels[name.decode()]), module, name)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.chains = [self.allocate(WORDS * 4) for _ in range(CHAINS)]
        for chain in self.chains:
            self.call("cuMemsetD32_v2", chain, 1, ctypes.c_size_t(WORDS))
        self.call("cuCtxSynchronize")

    def issue(self, kernel, *arguments, threads=WORDS):
        parameters = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        return self.code("cuLaunchKernel", self.kernels[kernel], 1, 1, 1, threads, 1, 1, 0, self.stream, parameters, None)

    def declare(self, reads, writes):
        """Arrays that the next launch reads, and writes."""
        lists = [(Segment * len(arrays))(*(Segment(array.value, WORDS * 4, 1, 0) for array in arrays))
                 for arrays in (reads, writes)]
        self.call("tally_declare_segments", lists[0], ctypes.c_size_t(len(reads)), lists[1], ctypes.c_size_t(len(writes)))

    def declared_step(self, number):
        """As the other, with kernels that nothing may run beside as far as is known."""
        for turn in (0, 1):
            for chain in self.chains:
                self.declare([chain], [chain])
                self.issue("watched", chain, ctypes.c_uint32(2 * number + turn + 3))
        for chain in self.chains[1:]:
            self.declare([self.chains[0], chain], [self.chains[0]])
            self.issue("gather", self.chains[0], chain)

    def step(self, number):
        """Each chain twice, in turns; then all are gathered in the first one."""
        codes = [self.issue("advance", chain, ctypes.c_uint32(2 * number + turn + 3))
                 for turn in (0, 1) for chain in self.chains]
        codes += [self.issue("gather", self.chains[0], chain) for chain in self.chains[1:]]
        return codes

    def read(self):
        words = (ctypes.c_uint32 * (CHAINS * WORDS))()
        self.call("cuStreamSynchronize", self.stream)
        for i, chain in enumerate(self.chains):
            self.call("cuMemcpyDtoH_v2", ctypes.byref(words, i * WORDS * 4), chain, ctypes.c_size_t(WORDS * 4))
        return list(words)


def expected(steps):
    chains = [[1] * WORDS for _ in range(CHAINS)]
    for number in range(steps):
        for turn in (0, 1):
            for words in chains:
                words[:] = [(word * (2 * number + turn + 3) + i) & MASK for i, word in enumerate(words)]
        for words in chains[1:]:
            chains[0][:] = [(word + other) & MASK for word, other in zip(chains[0], words)]
    return [word for words in chains for word in words]


def checked(steps):
    """So many, a few at a time; right at the end."""
    chains = Chains()
    for number in range(int(steps)):
        if any(chains.step(number)):
            sys.exit("a launch was refused")
        if number % 10 == 9:
            chains.call("cuStreamSynchronize", chains.stream)
    if chains.read() != expected(int(steps)):
        sys.exit("wrong words")
    print("OK")


def declared(steps):
    """Right words of kernels that say themselves what they touch."""
    chains = Chains()
    for number in range(int(steps)):
        chains.declared_step(number)
        if number % 10 == 9:
            chains.call("cuStreamSynchronize", chains.stream)
    if chains.read() != expected(int(steps)):
        sys.exit("wrong words")
    print("OK")


def forever():
    chains, number = Chains(), 0
    print("launching", flush=True)
    while True:
        chains.step(number)
        number += 1
        if number % 50 == 0:
            chains.call("cuStreamSynchronize", chains.stream)


def launched_and_left():
    """Then not one call more."""
    chains = Chains()
    for number in range(20):
        chains.step(number)
    chains.read()
    chains.step(20)
    print("launched", flush=True)
    time.sleep(100)


def faulty(steps):
    """One launch among others goes to memory that is not there. Says what waiting and asking again return."""
    chains = Chains()
    for number in range(int(steps)):
        chains.step(number)
    chains.call("cuStreamSynchronize", chains.stream)
    chains.step(int(steps))
    chains.issue("advance", ctypes.c_uint64(0x1000), ctypes.c_uint32(3))
    chains.step(int(steps))
    print(chains.code("cuStreamSynchronize", chains.stream), chains.code("cuCtxSynchronize"),
          chains.issue("advance", chains.chains[0], ctypes.c_uint32(3)))


def refused(steps):
    """In each step a launch that no driver takes. Says what each call returned, and whether the others were made."""
    chains, told = Chains(), set()
    for number in range(int(steps)):
        codes = [chains.issue("few", chains.chains[0], threads=WORDS)] + chains.step(number)
        codes += [chains.issue("advance", chains.chains[0], ctypes.c_uint32(3), threads=2000)]
        told.add(tuple(codes))
    print(sorted(told), chains.code("cuStreamSynchronize", chains.stream), chains.read() == expected(int(steps)))


if __name__ == "__main__":
    {"checked": checked, "forever": forever, "launched_and_left": launched_and_left, "faulty": faulty,
     "declared": declared, "refused": refused}[sys.argv[1]](*sys.argv[2:])
