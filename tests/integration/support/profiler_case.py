"""A program of profiler_test.py: attaches CUPTI as profilers do, before or after it initialises CUDA, and must not notice.

usage: profiler_case.py LIBCUPTI before|after
"""
import ctypes
import sys

from cuda_driver import Cuda

CUPTI_SUCCESS, CUPTI_ERROR_UNKNOWN = 0, 999
DRIVER_API, RUNTIME_API, RESOURCE, SYNCHRONIZE, NVTX = 1, 2, 3, 4, 5
MEMCPY, MEMSET, KERNEL, DRIVER, RUNTIME, OVERHEAD, CONCURRENT_KERNEL = 1, 2, 3, 4, 5, 17, 10


def main():
    path, when = sys.argv[1:]
    cuda = Cuda() if when == "after" else None
    cupti = ctypes.CDLL(path)
    version = ctypes.c_uint32()
    assert cupti.cuptiGetVersion(ctypes.byref(version)) == CUPTI_SUCCESS and version.value > 0

    num_callbacks = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: num_callbacks.append(1))
    subscriber = ctypes.c_void_p()
    assert cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None) == CUPTI_ERROR_UNKNOWN
    for domain in (DRIVER_API, RUNTIME_API, RESOURCE, SYNCHRONIZE, NVTX):
        assert cupti.cuptiEnableDomain(1, subscriber, domain) != CUPTI_SUCCESS
    requested = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: num_callbacks.append(2))
    completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(
        lambda *_: num_callbacks.append(3))
    assert cupti.cuptiActivityRegisterCallbacks(requested, completed) == CUPTI_ERROR_UNKNOWN
    for kind in (MEMCPY, MEMSET, KERNEL, DRIVER, RUNTIME, OVERHEAD, CONCURRENT_KERNEL):
        assert cupti.cuptiActivityEnable(kind) == CUPTI_ERROR_UNKNOWN

    cuda = cuda or Cuda()
    for _ in range(5):
        cuda.launch()
    assert cuda.sum() == 5
    assert cupti.cuptiActivityFlushAll(1) == CUPTI_ERROR_UNKNOWN
    for kind in (KERNEL, CONCURRENT_KERNEL):
        cupti.cuptiActivityDisable(kind)
    cupti.cuptiUnsubscribe(subscriber)
    cupti.cuptiFinalize()
    cuda.launch()
    assert cuda.sum() == 6
    assert num_callbacks == [], num_callbacks
    print("OK")


if __name__ == "__main__":
    main()
