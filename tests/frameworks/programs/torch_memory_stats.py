# needs: packages=torch
"""The allocator's books, memory pools, limits, running out of memory and going on."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.ones(1000, 1000, device="cuda")
y = x * 2
del x
statistics = torch.cuda.memory_stats()
digest.add("statistics", *(statistics[key] for key in ("allocated_bytes.all.current", "allocated_bytes.all.peak", "num_alloc_retries",
                                                      "reserved_bytes.all.current", "active.all.peak", "segment.all.current")))
free, total = torch.cuda.mem_get_info()
digest.add("free is less than total", 0 < free < total)
torch.cuda.reset_peak_memory_stats()
digest.add("peak", torch.cuda.max_memory_allocated())
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    digest.add("out of memory", "was not reported")
except torch.OutOfMemoryError as error:
    digest.add("out of memory", str(error)[:40])
digest.add("goes on", y.sum())
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    z = torch.full((1 << 20,), 3.0, device="cuda")
digest.add("pool", z.sum(), len(torch.cuda.memory_snapshot()) > 0)
torch.cuda.memory.set_per_process_memory_fraction(0.5)
torch.cuda.empty_cache()
digest.add("reserved", torch.cuda.memory_reserved())
properties = torch.cuda.get_device_properties(0)
digest.add("device", properties.name, properties.major, properties.minor, properties.multi_processor_count, torch.cuda.device_count())
digest.print()
