"""One process, natively, alone on the GPU: BERT as a graph, streams, how long a replay takes, and what brings about that it takes longer. Beside the others
here, with preload.cc's library in LD_PRELOAD."""
import sys, statistics as st, ctypes, time, os
sys.path[:0]=["/tmp/tally-bundle/bench/colocation","/tmp/tally-bundle/bench/support"]
import torch, inference_models, training_models
x=ctypes.CDLL(None)
torch.manual_seed(0)
with torch.device("cuda"): run, make = inference_models.NETWORKS["bert"]()
static=tuple(p.cuda() for p in make())
high=torch.cuda.Stream(priority=-1); low=torch.cuda.Stream(priority=0); high2=torch.cuda.Stream(priority=-1); mid=torch.cuda.Stream(priority=-1)
lowest,greatest=torch.cuda.Stream.priority_range() if hasattr(torch.cuda.Stream,"priority_range") else (0,-5)
top=torch.cuda.Stream(priority=greatest)
print("priorities",lowest,greatest)
def capture(f,stream=high,warm=3):
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(warm): f()
        torch.cuda.synchronize(); g=torch.cuda.CUDAGraph()
        with torch.cuda.graph(g,stream=stream): f()
    torch.cuda.synchronize(); return g
bert=capture(lambda: run(*static))
a,b=(torch.cuda.Event(enable_timing=True) for _ in range(2))
def times(g,n=9,stream=high):
    us=[]
    with torch.cuda.stream(stream):
        for i in range(n):
            a.record(); g.replay(); b.record(); torch.cuda.synchronize(); us.append(a.elapsed_time(b)*1e3)
    return us
def med(g=bert,n=9,stream=high): return st.median(times(g,n,stream)[1:])
m=torch.randn(4096,4096,device="cuda",dtype=torch.bfloat16); small=torch.zeros(1024,device="cuda"); torch.cuda.synchronize()
def on(s,f):
    with torch.cuda.stream(s): f()
    torch.cuda.synchronize()
def tiny(n):
    for _ in range(n): small.add_(1)
default=torch.cuda.default_stream()
def brings(cases,tries):
    """What a replay takes after a preemption, after that and the case, and what the case says."""
    print("at first",[round(v) for v in times(bert,8)],flush=True)
    for turn in range(2):
        for name,f in cases.items():
            out=[]
            for _ in range(tries):
                x.x_preempt(); c=med(n=5); r=f(); out.append((round(c),round(med(n=5)))+((r,) if isinstance(r,int) else ()))
            print(f"{name:44s} {sum(o[1]>715 for o in out)} of {tries} {out}",flush=True)
