# needs: packages=torch
"""Streams with priorities, events with times, waits across streams, host callbacks through record_stream, external streams."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(1 << 20, device="cuda")
torch.cuda.synchronize()
streams = [torch.cuda.Stream(priority=-1 if index % 2 else 0) for index in range(6)]
results = []
for index, stream in enumerate(streams):
    with torch.cuda.stream(stream):
        part = x * (index + 1)
        for _ in range(20):
            part = part.cos()
        part.record_stream(torch.cuda.current_stream())
        results.append(part)
events = [stream.record_event() for stream in streams]
for event in events:
    torch.cuda.current_stream().wait_event(event)
digest.add("six streams", torch.stack(results).sum(dim=0))
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
torch.cuda._sleep(200_000_000)
end.record()
digest.add("query before the end is false", end.query())
end.synchronize()
digest.add("elapsed more than 20 ms", start.elapsed_time(end) > 20, end.query(), streams[0].query())
low, high = torch.cuda.Stream.priority_range()
digest.add("priorities", low, high, streams[1].priority)
external = torch.cuda.ExternalStream(streams[2].cuda_stream)
with torch.cuda.stream(external):
    digest.add("external stream", (x + 1).sum())
default = torch.cuda.default_stream()
with torch.cuda.stream(streams[3]):
    y = x.sqrt().nan_to_num()
    streams[3].synchronize()
digest.add("synchronised", y)
digest.print()
