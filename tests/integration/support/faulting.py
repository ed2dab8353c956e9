"""A program whose kernel writes where nothing is, for soak.py: it must hear of it. Says `error N`."""
import ctypes

from cuda_driver import Cuda, CudaError

if __name__ == "__main__":
    try:
        cuda = Cuda()
        cuda.word = ctypes.c_uint64(0x123400000000)
        cuda.launch()
        cuda.call("cuCtxSynchronize")
        print("no error", flush=True)
    except CudaError as error:
        print(f"error {error.code}", flush=True)
