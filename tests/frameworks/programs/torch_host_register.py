# needs: packages=torch
"""cudaHostRegister of numpy's own memory through torch.cuda.cudart(), copies from and to it, and unregistering."""
import numpy
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
torch.cuda.init()
array = numpy.random.default_rng(3).standard_normal(1 << 21, dtype=numpy.float32)
tensor = torch.from_numpy(array)
result = torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.numel() * 4, 0)
assert int(result) == 0, result
digest.add("pinned", tensor.is_pinned())
on_device = tensor.cuda(non_blocking=True)
digest.add("to the device", on_device)
tensor.copy_(on_device * 2, non_blocking=True)
torch.cuda.synchronize()
digest.add("seen by numpy", array)
array += 1
digest.add("written by numpy", tensor.cuda())
result = torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())
assert int(result) == 0, result
digest.add("content stays", array, tensor.is_pinned())
digest.print()
