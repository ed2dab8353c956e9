#!/usr/bin/env python3
"""One rank of a job whose kernels wait for one another, as NCCL's do. Run by ranks_test.py and, on GPUs, by hand.

usage: rank_program.py DIRECTORY RANK SIZE STEPS [--memory host|ipc|physical] [--kernel NAME] [--devices N] [--seed N]
                       [--only CALL]

Every step launches a kernel that writes to each rank's memory, waits for what each rank writes and adds it up. While
it waits, calls of the driver are made (all of CALLS in turn), some of which wait for the kernel. The last line is the
sum of all steps and "OK".
"""
import argparse
import ctypes
import mmap
import os
import random
import socket
import sys
import time

MOST = 8  # ranks
PATIENCE = 60
# A rank's memory: flags of all ranks, their values (by the step's parity), the sum.
VALUES, SUM, BYTES = 64, 192, 4096
FILE_DESCRIPTOR = 1


def ptx(kernel):
    lines = [f""".version 7.0
.target sm_80
.address_size 64
.visible .global .u32 variable;
.visible .entry nothing() {{ ret; }}
.visible .entry {kernel}(.param .u64 own, .param .align 8 .b8 peers[64], .param .u32 rank, .param .u32 size,
                         .param .u32 step, .param .u32 value) {{
  .reg .pred %p, %q, %last;
  .reg .b32 %rank, %size, %step, %value, %half, %seen, %sum;
  .reg .b64 %own, %peer, %offset, %flag;
  ld.param.u64 %own, [own];
  ld.param.u32 %rank, [rank];
  ld.param.u32 %size, [size];
  ld.param.u32 %step, [step];
  ld.param.u32 %value, [value];
  and.b32 %half, %step, 1;
  mad.lo.u32 %half, %half, {MOST}, %rank;
  mul.wide.u32 %offset, %half, 4;
  mul.wide.u32 %flag, %rank, 4;"""]
    for stored, base in ((f"st.volatile.global.u32 [%peer + {VALUES}], %value;", "%offset"),
                         ("st.volatile.global.u32 [%peer], %step;", "%flag")):
        for rank in range(MOST):
            lines.append(f"""
  setp.gt.u32 %p, %size, {rank};
  ld.param.u64 %peer, [peers + {8 * rank}];
  add.u64 %peer, %peer, {base};
  @%p {stored}""")
        lines.append("  membar.sys;")
    for rank in range(MOST):
        lines.append(f"""
  setp.le.u32 %p, %size, {rank};
  @%p bra DONE;
WAIT_{rank}:
  ld.volatile.global.u32 %seen, [%own + {4 * rank}];
  setp.ge.s32 %q, %seen, %step;
  @%q bra SEEN_{rank};
  nanosleep.u32 20000;
  bra WAIT_{rank};
SEEN_{rank}:""")
    lines.append("DONE:\n  membar.sys;\n  ld.volatile.global.u32 %sum, [%own + " + str(SUM) + "];")
    lines.append(f"  and.b32 %half, %step, 1;\n  mul.lo.u32 %half, %half, {4 * MOST};\n"
                 "  cvt.u64.u32 %offset, %half;\n  add.u64 %peer, %own, %offset;")
    for rank in range(MOST):
        lines.append(f"""
  setp.gt.u32 %p, %size, {rank};
  mov.u32 %seen, 0;
  @%p ld.volatile.global.u32 %seen, [%peer + {VALUES + 4 * rank}];
  add.u32 %sum, %sum, %seen;""")
    lines.append(f"  st.volatile.global.u32 [%own + {SUM}], %sum;\n  ret;\n}}\n")
    return "\n".join(lines).encode() + b"\0"


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
                ("security", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""
    _fields_ = [("location", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle: passed by value."""
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
                ("security", ctypes.c_void_p), ("most", ctypes.c_size_t), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 54)]


class Driver:
    def __init__(self, device):
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        self.device = device
        self.context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self("cuCtxSetCurrent", self.context)

    def __call__(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            print(f"{name}: CUDA error {result}", flush=True)
            sys.exit(3)

    def made(self, kind, name, *arguments):
        """What the call writes to its first argument."""
        value = kind()
        self(name, ctypes.byref(value), *arguments)
        return value


def pointer():
    return ctypes.c_void_p()


def address():
    return ctypes.c_uint64()


class Job:
    """Files in a directory, by which ranks find one another before their kernels do."""

    def __init__(self, directory, rank, size):
        self.directory, self.rank, self.size = directory, rank, size

    def say(self, what, content):
        path = os.path.join(self.directory, f"{what}-{self.rank}")
        with open(path + ".new", "wb") as file:
            file.write(content)
        os.rename(path + ".new", path)

    def hear(self, what, rank):
        path = os.path.join(self.directory, f"{what}-{rank}")
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(path):
            if time.monotonic() > deadline:
                sys.exit(f"rank {self.rank}: rank {rank} says no {what}")
            time.sleep(0.005)
        with open(path, "rb") as file:
            return file.read()

    def meet(self, what):
        self.say(what, b"")
        for rank in range(self.size):
            self.hear(what, rank)


class HostMemory:
    """A file that all ranks register, as NCCL's ranks do without peer access."""

    def __init__(self, driver, job):
        path = os.path.join(job.directory, "shared")
        if job.rank == 0:
            with open(path + ".new", "wb") as file:
                file.write(bytes(BYTES * MOST))
            os.rename(path + ".new", path)
        while not os.path.exists(path):
            time.sleep(0.005)
        with open(path, "r+b") as file:
            self.mapping = mmap.mmap(file.fileno(), BYTES * MOST)
        start = ctypes.c_char.from_buffer(self.mapping)
        self.driver, self.start = driver, ctypes.c_void_p(ctypes.addressof(start))
        driver("cuMemHostRegister_v2", self.start, ctypes.c_size_t(BYTES * MOST), 2)
        base = driver.made(address, "cuMemHostGetDevicePointer_v2", self.start, 0).value
        self.peers = [base + rank * BYTES for rank in range(MOST)]
        self.own = self.peers[job.rank]


class IpcMemory:
    def __init__(self, driver, job):
        self.memory = driver.made(address, "cuMemAlloc_v2", ctypes.c_size_t(BYTES))
        self.own = self.memory.value
        driver("cuMemsetD8_v2", self.memory, 0, ctypes.c_size_t(BYTES))
        driver("cuCtxSynchronize")
        handle = IpcHandle()
        driver("cuIpcGetMemHandle", ctypes.byref(handle), self.memory)
        job.say("memory", bytes(handle.bytes))
        self.peers = [0] * MOST
        for rank in range(job.size):
            if rank == job.rank:
                self.peers[rank] = self.own
                continue
            other = IpcHandle.from_buffer_copy(job.hear("memory", rank))
            self.peers[rank] = driver.made(address, "cuIpcOpenMemHandle_v2", other, 1).value


class PhysicalMemory:
    """A descriptor through a socket, as NCCL's ranks do by default."""

    def __init__(self, driver, job):
        properties = Properties(1, FILE_DESCRIPTOR, 1, driver.device)
        size = driver.made(ctypes.c_size_t, "cuMemGetAllocationGranularity", ctypes.byref(properties), 0)
        handle = driver.made(address, "cuMemCreate", size, ctypes.byref(properties), ctypes.c_ulonglong(0))
        fd = driver.made(ctypes.c_int, "cuMemExportToShareableHandle", handle, FILE_DESCRIPTOR, ctypes.c_ulonglong(0))
        self.own = self.map(driver, handle, size)
        driver("cuMemsetD8_v2", ctypes.c_uint64(self.own), 0, ctypes.c_size_t(BYTES))
        driver("cuCtxSynchronize")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(os.path.join(job.directory, f"socket-{job.rank}"))
            door.listen(MOST)
            job.say("door", b"")
            self.peers = [0] * MOST
            self.peers[job.rank] = self.own
            others = [rank for rank in range(job.size) if rank != job.rank]
            connections = []
            for rank in others:
                job.hear("door", rank)
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.connect(os.path.join(job.directory, f"socket-{rank}"))
                connections.append((rank, connection))
            for _ in others:
                connection, _ = door.accept()
                socket.send_fds(connection, [b"f"], [fd.value])
            for rank, connection in connections:
                _, (received,), _, _ = socket.recv_fds(connection, 1, 1)
                other = driver.made(address, "cuMemImportFromShareableHandle", ctypes.c_void_p(received), FILE_DESCRIPTOR)
                os.close(received)
                self.peers[rank] = self.map(driver, other, size)

    @staticmethod
    def map(driver, handle, size):
        reserved = driver.made(address, "cuMemAddressReserve", size, ctypes.c_size_t(0), ctypes.c_uint64(0),
                               ctypes.c_ulonglong(0))
        driver("cuMemMap", reserved, size, ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
        access = Access(1, driver.device, 3)
        driver("cuMemSetAccess", reserved, size, ctypes.byref(access), ctypes.c_size_t(1))
        driver("cuMemRelease", handle)
        return reserved.value


def size_t(number):
    return ctypes.c_size_t(number)


def make_calls(driver, code):
    """By name, what is done while a kernel waits: all of it ends, perhaps after the kernel."""
    d = driver
    other = d.made(pointer, "cuStreamCreate", 1)
    memory = d.made(address, "cuMemAlloc_v2", size_t(1 << 16))
    more = d.made(address, "cuMemAlloc_v2", size_t(1 << 16))
    pinned = d.made(pointer, "cuMemAllocHost_v2", size_t(1 << 16))
    pageable = ctypes.create_string_buffer(1 << 16)
    event = d.made(pointer, "cuEventCreate", 0)
    module = d.made(pointer, "cuModuleLoadData", code)
    nothing = d.made(pointer, "cuModuleGetFunction", module, b"nothing")
    host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *_: None)

    def launch(stream=other):
        d("cuLaunchKernel", nothing, 1, 1, 1, 1, 1, 1, 0, stream, None, None)

    def capture():
        d("cuStreamBeginCapture_v2", other, 2)
        launch()
        graph = pointer()
        d("cuStreamEndCapture", other, ctypes.byref(graph))
        executable = d.made(pointer, "cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
        d("cuGraphLaunch", executable, other)
        d("cuGraphExecDestroy", executable)
        d("cuGraphDestroy", graph)

    def virtual():
        properties = Properties(1, 0, 1, d.device)
        size = d.made(ctypes.c_size_t, "cuMemGetAllocationGranularity", ctypes.byref(properties), 0)
        handle = d.made(address, "cuMemCreate", size, ctypes.byref(properties), ctypes.c_ulonglong(0))
        reserved = ctypes.c_uint64(PhysicalMemory.map(d, handle, size))
        d("cuMemUnmap", reserved, size)
        d("cuMemAddressFree", reserved, size)

    def pool():
        properties = PoolProperties(1, 0, 1, d.device)
        made = d.made(pointer, "cuMemPoolCreate", ctypes.byref(properties))
        piece = d.made(address, "cuMemAllocFromPoolAsync", size_t(4096), made, other)
        d("cuMemFreeAsync", piece, other)
        d("cuStreamSynchronize", other)
        d("cuMemPoolTrimTo", made, size_t(0))
        d("cuMemPoolDestroy", made)

    def library():
        made = d.made(pointer, "cuLibraryLoadData", code, None, None, 0, None, None, 0)
        d.made(pointer, "cuLibraryGetKernel", made, b"nothing")
        d("cuLibraryUnload", made)

    def load():
        made = d.made(pointer, "cuModuleLoadData", code)
        d.made(pointer, "cuModuleGetFunction", made, b"nothing")
        d("cuModuleUnload", made)

    def variable():
        size = ctypes.c_size_t()
        where = address()
        d("cuModuleGetGlobal_v2", ctypes.byref(where), ctypes.byref(size), module, b"variable")

    def streams(count):
        made = [d.made(pointer, "cuStreamCreate", 1) for _ in range(count)]
        for stream in made:
            d("cuStreamDestroy_v2", stream)

    def events():
        made = [d.made(pointer, "cuEventCreate", 0) for _ in range(2)]
        for each in made:
            d("cuEventRecord", each, other)
        d("cuEventSynchronize", made[1])
        d("cuEventElapsedTime", ctypes.byref(ctypes.c_float()), made[0], made[1])
        for each in made:
            d("cuEventDestroy_v2", each)

    def register():
        block = mmap.mmap(-1, 1 << 16)
        begin = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(block)))
        d("cuMemHostRegister_v2", begin, size_t(1 << 16), 0)
        d("cuMemHostUnregister", begin)

    def info():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        d("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))

    def written():
        d("cuStreamWriteValue32_v2", other, memory, 7, 0)
        d("cuStreamWaitValue32_v2", other, memory, 7, 1)

    return {
        "free": lambda: d("cuMemFree_v2", d.made(address, "cuMemAlloc_v2", size_t(1 << 20))),
        "free pitched": lambda: d("cuMemFree_v2", pitched(d)),
        "free host": lambda: d("cuMemFreeHost", d.made(pointer, "cuMemAllocHost_v2", size_t(4096))),
        "free mapped host": lambda: d("cuMemFreeHost", d.made(pointer, "cuMemHostAlloc", size_t(4096), 2)),
        "free managed": lambda: d("cuMemFree_v2", d.made(address, "cuMemAllocManaged", size_t(4096), 1)),
        "free in order": lambda: d("cuMemFreeAsync", d.made(address, "cuMemAllocAsync", size_t(4096), other), other),
        "pool": pool,
        "virtual memory": virtual,
        "register host": register,
        "module": load,
        "library": library,
        "variable": variable,
        "kernel attribute": lambda: d("cuFuncGetAttribute", ctypes.byref(ctypes.c_int()), 0, nothing),
        "kernel setting": lambda: d("cuFuncSetAttribute", nothing, 8, 0),
        "occupancy": lambda: d("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(ctypes.c_int()), nothing, 32,
                               size_t(0)),
        "launch": launch,
        "launch in the legacy stream": lambda: launch(None),
        "graph": capture,
        "stream": lambda: streams(1),
        "64 streams": lambda: streams(64),
        "stream of a priority": lambda: d("cuStreamDestroy_v2", d.made(pointer, "cuStreamCreateWithPriority", 1, 0)),
        "stream, asked": lambda: getattr(d.library, "cuStreamQuery")(other),
        "stream, waited for": lambda: d("cuStreamSynchronize", other),
        "context, waited for": lambda: d("cuCtxSynchronize"),
        "events": events,
        "event, asked": lambda: getattr(d.library, "cuEventQuery")(event),
        "event, recorded": lambda: d("cuEventRecord", event, other),
        "event, awaited": lambda: (d("cuEventRecord", event, other), d("cuStreamWaitEvent", other, event, 0)),
        "host function": lambda: d("cuLaunchHostFunc", other, host_function, None),
        "callback": lambda: d("cuStreamAddCallback", other, callback, None, 0),
        "value written and awaited": written,
        "copy to the device": lambda: d("cuMemcpyHtoD_v2", memory, pageable, size_t(1 << 16)),
        "copy from the device": lambda: d("cuMemcpyDtoH_v2", pageable, memory, size_t(1 << 16)),
        "copy on the device": lambda: d("cuMemcpyDtoD_v2", more, memory, size_t(1 << 16)),
        "copy to the device, in order": lambda: d("cuMemcpyHtoDAsync_v2", memory, pinned, size_t(1 << 16), other),
        "copy from the device, in order": lambda: d("cuMemcpyDtoHAsync_v2", pinned, memory, size_t(1 << 16), other),
        "copy on the device, in order": lambda: d("cuMemcpyDtoDAsync_v2", more, memory, size_t(1 << 16), other),
        "copy by unified addresses": lambda: d("cuMemcpy", more, memory, size_t(64)),
        "fill": lambda: d("cuMemsetD8_v2", memory, 1, size_t(1 << 16)),
        "fill with words": lambda: d("cuMemsetD32_v2", memory, 1, size_t(1 << 10)),
        "fill, in order": lambda: d("cuMemsetD32Async", memory, 1, size_t(1 << 10), other),
        "memory left": info,
        "range of an address": lambda: d("cuMemGetAddressRange_v2", ctypes.byref(address()),
                                         ctypes.byref(ctypes.c_size_t()), memory),
        "pointer attribute": lambda: d("cuPointerGetAttribute", ctypes.byref(ctypes.c_uint64()), 1, memory),
        "limit": lambda: d("cuCtxGetLimit", ctypes.byref(ctypes.c_size_t()), 0),
        "limit, set": lambda: d("cuCtxSetLimit", 0, size_t(2048)),
        "cache setting": lambda: d("cuCtxSetCacheConfig", 1),
        "context, pushed and popped": lambda: (d("cuCtxPushCurrent_v2", d.context),
                                               d("cuCtxPopCurrent_v2", ctypes.byref(pointer()))),
        "device attribute": lambda: d("cuDeviceGetAttribute", ctypes.byref(ctypes.c_int()), 16, d.device),
        "state of the primary context": lambda: d("cuDevicePrimaryCtxGetState", d.device, ctypes.byref(ctypes.c_uint()),
                                                  ctypes.byref(ctypes.c_int())),
        "ipc handle": lambda: d("cuIpcGetMemHandle", ctypes.byref(IpcHandle()), memory),
    }


def pitched(driver):
    where, pitch = address(), ctypes.c_size_t()
    driver("cuMemAllocPitch_v2", ctypes.byref(where), ctypes.byref(pitch), size_t(100), size_t(10), 4)
    return where


def value_of(step, rank):
    return (step * 2654435761 + rank * 40503) % (1 << 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("rank", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--memory", choices=("host", "ipc", "physical"), default="host")
    parser.add_argument("--kernel", default="meet")
    parser.add_argument("--devices", type=int, default=1, help="ranks take turns on so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="this call in every step")
    arguments = parser.parse_args()

    driver = Driver(arguments.rank % arguments.devices)
    job = Job(arguments.directory, arguments.rank, arguments.size)
    code = ptx(arguments.kernel)
    module = driver.made(pointer, "cuModuleLoadData", code)
    kernel = driver.made(pointer, "cuModuleGetFunction", module, arguments.kernel.encode())
    memory = {"host": HostMemory, "ipc": IpcMemory, "physical": PhysicalMemory}[arguments.memory](driver, job)
    stream = driver.made(pointer, "cuStreamCreate", 1)
    calls = make_calls(driver, code)
    names = [arguments.only] if arguments.only else list(calls)
    own, peers = ctypes.c_uint64(memory.own), (ctypes.c_uint64 * MOST)(*memory.peers)
    numbers = [ctypes.c_uint32(arguments.rank), ctypes.c_uint32(arguments.size), ctypes.c_uint32(), ctypes.c_uint32()]
    parameters = (ctypes.c_void_p * 6)(ctypes.addressof(own), ctypes.addressof(peers),
                                       *[ctypes.addressof(number) for number in numbers])
    pauses = random.Random(arguments.seed * 100 + arguments.rank)
    job.meet("ready")
    print("ready", flush=True)
    for step in range(1, arguments.steps + 1):
        # Now this rank is late, now another: whoever is early has a kernel that waits while it makes its call.
        time.sleep(pauses.choice((0, 0, 0.002, 0.01)))
        numbers[2].value, numbers[3].value = step, value_of(step, arguments.rank)
        driver("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)
        calls[names[(step - 1 + arguments.seed) % len(names)]]()
        # The values of two steps are kept apart, no more.
        driver("cuStreamSynchronize", stream)
    total = ctypes.c_uint32()
    driver("cuMemcpyDtoH_v2", ctypes.byref(total), ctypes.c_uint64(memory.own + SUM), size_t(4))
    expected = sum(value_of(step, rank) for step in range(1, arguments.steps + 1)
                   for rank in range(arguments.size)) % (1 << 32)
    # Nobody's memory goes while another's kernel may write to it.
    job.meet("done")
    print(f"sum {total.value:08x} of {len(names)} calls " + ("OK" if total.value == expected else f"WRONG, {expected:08x}"),
          flush=True)
    sys.exit(0 if total.value == expected else 4)


if __name__ == "__main__":
    main()
