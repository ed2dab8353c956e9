# needs: packages=cupy gpus=2
"""CuPy on two GPUs: arrays on each, copies between them, peer access, NCCL in one process's threads is left to PyTorch."""
import cupy

from shared.digest import Digest

digest = Digest()
with cupy.cuda.Device(0):
    x = cupy.random.default_rng(6).standard_normal(100_000)
with cupy.cuda.Device(1):
    y = cupy.asarray(x)
    z = cupy.sort(y) * 2
    digest.add("on the second", z, z.device.id)
with cupy.cuda.Device(0):
    digest.add("back on the first", cupy.asarray(z) + x)
    digest.add("peer access", cupy.cuda.runtime.deviceCanAccessPeer(0, 1))
with cupy.cuda.Device(1):
    target = cupy.empty_like(y)
    target.data.copy_from_device(x.data, x.nbytes)
    digest.add("raw copy", target)
digest.print()
