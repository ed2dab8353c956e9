"""A program beside others in one executor. For each line on stdin it does some work and says whether the results are right.

Answers: `right`; `wrong: WHAT`; `error N`, CUDA's, after which it ends.
"""
import ctypes
import sys

from cuda_driver import Cuda, CudaError

SIZE = 1 << 16


def work(cuda, round_number):
    """What is wrong with the results, if anything."""
    before = cuda.sum()
    for _ in range(10):
        cuda.launch(round_number)
    if cuda.sum() != (before + 10 * round_number) % 2**32:
        return "a launch was lost"
    size = ctypes.c_size_t(SIZE)
    pattern = bytes((i * 7 + round_number) % 256 for i in range(SIZE))
    back = ctypes.create_string_buffer(SIZE)
    first, second = cuda.allocate(SIZE), cuda.allocate(SIZE)
    cuda.call("cuMemcpyHtoD_v2", first, pattern, size)
    cuda.call("cuMemcpyDtoDAsync_v2", second, first, size, None)
    cuda.call("cuMemsetD8Async", first, 0, size, None)
    cuda.call("cuMemcpyDtoH_v2", back, second, size)
    cuda.call("cuMemFree_v2", first)
    cuda.call("cuMemFree_v2", second)
    return "" if back.raw == pattern else "a copy is wrong"


def main():
    try:
        cuda = Cuda()
        print("ready", flush=True)
        for round_number, _ in enumerate(sys.stdin, 1):
            wrong = work(cuda, round_number)
            print(f"wrong: {wrong}" if wrong else "right", flush=True)
    except CudaError as error:
        print(f"error {error.code}", flush=True)


if __name__ == "__main__":
    main()
