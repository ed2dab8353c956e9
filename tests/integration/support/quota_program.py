"""A CUDA program that takes device memory in every way there is. Words: what it is to do. Says what CUDA answers."""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
OUT_OF_MEMORY = 2


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Array(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]


def checked(result):
    if result != 0:
        raise SystemExit(f"CUDA error {result}")


def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    checked(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value


def plain(size):
    address = ctypes.c_uint64()
    result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    return result, lambda: cuda.cuMemFree_v2(address)


def pitched(size):
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    result = cuda.cuMemAllocPitch_v2(ctypes.byref(address), ctypes.byref(pitch), ctypes.c_size_t(size // 16),
                                     ctypes.c_size_t(16), 4)
    return result, lambda: cuda.cuMemFree_v2(address)


def pooled(size):
    address = ctypes.c_uint64()
    result = cuda.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(size), None)

    def free():
        return cuda.cuMemFreeAsync(address, None) or cuda.cuCtxSynchronize()
    return result, free


def virtual(size):
    properties = AllocationProperties(1, 0, Location(1, 0))
    handle = ctypes.c_uint64()
    result = cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_uint64(0))
    return result, lambda: cuda.cuMemRelease(handle)


def array(size):
    description = Array(1024, size // 4096, 0x20, 1)
    handle = ctypes.c_void_p()
    result = cuda.cuArrayCreate_v2(ctypes.byref(handle), ctypes.byref(description))
    return result, lambda: cuda.cuArrayDestroy(handle)


WAYS = {way.__name__: way for way in (plain, pitched, pooled, virtual, array)}


def fill(way, size):
    """As many pieces as there is room for; says how many, and what is free and there. Ends with its input."""
    pieces = []
    while True:
        result, free = WAYS[way](int(size))
        if result != 0:
            break
        pieces.append(free)
    print(result, len(pieces), *info(), flush=True)
    sys.stdin.readline()
    for free in pieces:
        checked(free())
    print(*info(), flush=True)
    sys.stdin.readline()


def storm(rounds, size):
    """Takes and gives back; every answer is memory or none, and what is free is never more than there is."""
    refused = 0
    for _ in range(int(rounds)):
        for way in (plain, pooled, virtual):
            result, free = way(int(size))
            if result == OUT_OF_MEMORY:
                refused += 1
                continue
            checked(result)
            left, total = info()
            if left > total - int(size):
                raise SystemExit(f"{left} of {total} are free beside {size}")
            checked(free())
    print("refused", refused, flush=True)


checked(cuda.cuInit(0))
context = ctypes.c_void_p()
checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
checked(cuda.cuCtxSetCurrent(context))
{"fill": fill, "storm": storm}[sys.argv[1]](*sys.argv[2:])
