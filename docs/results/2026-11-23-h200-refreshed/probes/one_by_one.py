"""Is it single operations that bring the state about? Each is waited for and looked at."""
import time
from alone import torch, training_models, x, bert, high, a, b, times
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
