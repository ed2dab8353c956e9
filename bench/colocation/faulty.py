#!/usr/bin/env python3
"""A best-effort program that goes wrong on the GPU, as promises.py starts one each second.

    faulty.py KIND          healthy (does nothing wrong), illegal-access, trap, out-of-memory or endless

Says "there" on a line of its own once it is about to. It ends with the driver's error as its last line; endless does
not end, so it must be killed.
"""
import ctypes
import sys

import stand_ins

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry healthy() {
  ret;
}
.visible .entry illegal_access() {
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 0x123400000000;
  st.global.u32 [%rd1], 1;
  ret;
}
.visible .entry do_trap() {
  trap;
  ret;
}
.visible .entry endless(.param .u64 word) {
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
AGAIN:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  ret;
}
"""
ENTRIES = {"healthy": b"healthy", "illegal-access": b"illegal_access", "trap": b"do_trap", "endless": b"endless"}
KINDS = ("healthy", "out-of-memory", "illegal-access", "trap", "endless")


class Faulty(stand_ins.Gpu):
    def allocate(self, size):
        """(error, address)"""
        memory = ctypes.c_uint64()
        return self.tried("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size)), memory

    def take_all(self):
        """Until there is none; smaller and smaller pieces."""
        size = 1 << 34
        while size >= 1 << 21:
            error, _ = self.allocate(size)
            if error:
                size //= 2
        return error

    def run(self, kind):
        function = self.load(PTX, ENTRIES[kind])
        error, word = self.allocate(4)
        if not error:
            self.call("cuMemsetD32_v2", word, 0, ctypes.c_size_t(1))
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(word))
            self.call("cuLaunchKernel", function, 132, 1, 1, 128, 1, 1, 0, None, pointers if kind == "endless" else None, None)
        return error or self.tried("cuCtxSynchronize")


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    gpu = Faulty()
    print("there", flush=True)
    error = gpu.take_all() if sys.argv[1] == "out-of-memory" else gpu.run(sys.argv[1])
    print(f"error {error}", flush=True)


if __name__ == "__main__":
    main()
