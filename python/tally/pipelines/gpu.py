"""The current GPU and some of its memory, by the driver alone: for plans of a graph's file, where no PyTorch is."""
import contextlib
import ctypes


class NoGpu(RuntimeError):
    """One sentence."""


def _check(driver, name, *arguments):
    result = getattr(driver, name)(*arguments)
    if result != 0:
        raise NoGpu(f"the CUDA driver has no GPU for this: {name} gave {result}")


@contextlib.contextmanager
def memory(size):
    """The address of `size` bytes on GPU 0, whose context is current in this thread meanwhile."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoGpu("there is no CUDA driver on this machine") from None
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _check(driver, "cuInit", 0)
    _check(driver, "cuDeviceGet", ctypes.byref(device), 0)
    _check(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _check(driver, "cuCtxPushCurrent_v2", context)
        try:
            _check(driver, "cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            try:
                yield address.value
            finally:
                driver.cuMemFree_v2(address)
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
