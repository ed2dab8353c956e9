# needs: packages=cupy
"""CuPy: streams, events with times, captured graphs, host callbacks, copies between streams."""
import cupy

from shared.digest import Digest

digest = Digest()
generator = cupy.random.default_rng(4)
x = generator.standard_normal(1 << 18, dtype=cupy.float32)
cupy.cuda.Device().synchronize()
streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
parts = []
for index, stream in enumerate(streams):
    with stream:
        part = x * index
        for _ in range(10):
            part = cupy.cos(part)
        parts.append(part)
done = [stream.record() for stream in streams]
main = cupy.cuda.Stream(non_blocking=True)
for event in done:
    main.wait_event(event)
with main:
    digest.add("four streams", cupy.stack(parts).sum(axis=0))
start, end = cupy.cuda.Event(), cupy.cuda.Event()
start.record(main)
with main:
    y = cupy.sort(x)
end.record(main)
end.synchronize()
digest.add("times", cupy.cuda.get_elapsed_time(start, end) > 0, y)
kernel = cupy.ElementwiseKernel("float32 a", "float32 b", "b = a * 0.5f + 1", "half_plus_one")
target = cupy.zeros_like(x)
kernel(x, target)
cupy.cuda.Device().synchronize()
with main:
    main.begin_capture()
    kernel(x, target)
    kernel(target, target)
    graph = main.end_capture()
    for _ in range(3):
        graph.launch(main)
main.synchronize()
digest.add("graph", target)
seen = []
main.launch_host_func(seen.append, "called")
main.synchronize()
digest.add("host function", seen)
digest.print()
