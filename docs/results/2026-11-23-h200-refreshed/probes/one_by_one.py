"""Natively: what brings the state in which the graph takes a tenth longer, what ends it, which kernels feel it."""
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
def steps(n=3):
    for _ in range(n): tr.step()()
def beside(s=low):
    with torch.cuda.stream(s): steps(2)
    for _ in range(4): times(bert,1)
    torch.cuda.synchronize()
def mm(n):
    for _ in range(n): m@m
def tiny(n):
    for _ in range(n): small.add_(1)
default=torch.cuda.default_stream()
coop=None

from torch.utils._python_dispatch import TorchDispatchMode
def quick():
    us=[]
    with torch.cuda.stream(high):
        for i in range(4):
            a.record(); bert.replay(); b.record(); torch.cuda.synchronize(); us.append(a.elapsed_time(b)*1e3)
    return min(us[1:])
t0=time.perf_counter(); seen={}; order=[]; count=[0]; limit=[0]
class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        r=func(*args, **(kwargs or {}))
        if time.perf_counter()>limit[0]: return r
        count[0]+=1
        torch.cuda.synchronize(); v=quick()
        name=str(func); seen.setdefault(name,[0,0]); seen[name][0]+=1
        if v>715:
            seen[name][1]+=1
            shapes=[tuple(x.shape) if hasattr(x,"shape") else None for x in args][:3]
            mem=torch.cuda.memory_reserved()>>20
            x.x_preempt(); w=quick()
            again=None
            try: func(*args, **(kwargs or {})); torch.cuda.synchronize(); again=round(quick())
            except Exception as e: again=repr(e)[:40]
            x.x_preempt(); quick()
            if len(order)<60: print(f"[{time.perf_counter()-t0:5.2f}] op {count[0]} {name} {shapes} reserved {mem} MiB: {round(v)} preempted {round(w)} the same once more {again}",flush=True)
            order.append(name)
        return r
print("at first",[round(v) for v in times(bert,8)],flush=True)
x.x_preempt(); quick()
def watched(label,f,seconds):
    limit[0]=time.perf_counter()+seconds
    with Watch(): r=f()
    print(label,"ops",count[0],"dirty after",len(order),flush=True); return r
import threading
torch.autograd.set_multithreading_enabled(False)
def pieces():
    y=torch.randn(4096,4096,device="cuda"); z=y.bfloat16(); w=z@z; q=torch.softmax(y,-1); l=torch.nn.functional.layer_norm(y,(4096,)); s_=y.sum(); return s_.item()
watched("pieces",pieces,4); watched("pieces again",pieces,3)
tr=watched("build pointnet",lambda: training_models.build("pointnet"),14)
def step(): tr.step()(); torch.cuda.synchronize()
for _ in range(2): watched("step",step,6)
for n in seen:
    if seen[n][1]: print(n,seen[n])
# without looking in between
for _ in range(3):
    x.x_preempt(); c=quick(); torch.cuda.empty_cache(); d=quick(); step(); print("empty_cache",round(c),round(d),"and a step",round(quick()),flush=True)
