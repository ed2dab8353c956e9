"""Natively: the graph on a stream of high priority, a training on one of low, in one process."""
import sys, statistics as st
sys.path[:0]=["/tmp/tally-bundle/bench/colocation","/tmp/tally-bundle/bench/support"]
import torch, inference_models, training_models
torch.manual_seed(0)
with torch.device("cuda"): run, make = inference_models.NETWORKS["bert"]()
static=tuple(p.cuda() for p in make())
high=torch.cuda.Stream(priority=-1); low=torch.cuda.Stream(priority=0)
with torch.inference_mode(), torch.cuda.stream(high):
    for _ in range(5): run(*static)
    torch.cuda.synchronize()
    g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g,stream=high): out=run(*static)
a,b=(torch.cuda.Event(enable_timing=True) for _ in range(2))
def measure(label,n=16):
    us=[]
    with torch.cuda.stream(high):
        for _ in range(n):
            a.record(); g.replay(); b.record(); torch.cuda.synchronize(); us.append(round(a.elapsed_time(b)*1e3))
    print(f"native, high stream      {label:40s} first {us[0]:5d} median of the others {st.median(us[1:]):6.1f} {us[1:9]}",flush=True)
for _ in range(3): measure("alone",60)
with torch.cuda.stream(low):
    x=torch.randn(4096,4096,device="cuda",dtype=torch.bfloat16); torch.cuda.synchronize()
    for _ in range(2):
        x@x; torch.cuda.synchronize(); measure("after matmul on low")
    tr=training_models.build("pointnet")
    for _ in range(3):
        tr.step()(); torch.cuda.synchronize(); measure("after pointnet on low")
    for _ in range(3):
        for _ in range(3): tr.step()
        measure("beside pointnet on low")
        torch.cuda.synchronize(); measure("then")
