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

import threading, cupy
cu=ctypes.CDLL("libcuda.so.1")
word=torch.zeros(64,dtype=torch.int32).pin_memory(); torch.cuda.synchronize()
def wait(stream,v):
    e=cu.cuStreamWaitValue32_v2(ctypes.c_void_p(stream.cuda_stream),ctypes.c_uint64(word.data_ptr()),ctypes.c_uint32(v),ctypes.c_uint(1)); assert e==0,e
def write(stream,v,off=128):
    e=cu.cuStreamWriteValue32_v2(ctypes.c_void_p(stream.cuda_stream),ctypes.c_uint64(word.data_ptr()+off),ctypes.c_uint32(v),ctypes.c_uint(0)); assert e==0,e
spin=cupy.RawKernel(r"""extern "C" __global__ void spin(volatile int* p,int v){ while (*p!=v) __nanosleep(1000); }""","spin")
def park(stream,v=7):
    with cupy.cuda.ExternalStream(stream.cuda_stream): spin((1,),(1,),(word.data_ptr(),v))
word[0]=7; park(low); torch.cuda.synchronize()
streams=[low]+[torch.cuda.Stream(priority=0) for _ in range(3)]
for q in streams: on(q,lambda: tiny(1))
d8=torch.zeros(8,device="cuda"); h8=torch.zeros(8).pin_memory(); other=torch.cuda.Stream(priority=-2); default=torch.cuda.default_stream()
def held(f,hold,n=1,release=True):
    """f while n streams are held; what high took meanwhile."""
    def g():
        word[0]=0
        for q in streams[:n]: hold(q,7)
        timer=threading.Timer(0.3,lambda: word.__setitem__(0,7)); timer.start()
        r=f(); word[0]=7; timer.cancel(); torch.cuda.synchronize(); return r
    return g
def replays(n=6):
    us=[]
    with torch.cuda.stream(high):
        for _ in range(n): a.record(); bert.replay(); b.record(); b.synchronize(); us.append(a.elapsed_time(b)*1e3)
    return round(st.median(us[1:]))
def tinies():
    with torch.cuda.stream(high): tiny(300)
    high.synchronize()
def crossing():
    with torch.cuda.stream(high): bert.replay(); e=torch.cuda.Event(); e.record()
    low.wait_event(e); 
    with torch.cuda.stream(low): tiny(1)
    with torch.cuda.stream(high): bert.replay()
    torch.cuda.synchronize()
def both():
    with torch.cuda.stream(low): tiny(600)
    r=replays(4); torch.cuda.synchronize(); return r
def with_writes():
    with torch.cuda.stream(high): bert.replay()
    for i in range(50): write(other,i)
    torch.cuda.synchronize()
def low_and_writes():
    with torch.cuda.stream(low): tiny(300)
    for i in range(50): write(other,i)
    torch.cuda.synchronize()
def low_and_copies(pinned=True):
    with torch.cuda.stream(low): tiny(300)
    with torch.cuda.stream(other):
        for i in range(50): d8.copy_(h8,non_blocking=True)
    torch.cuda.synchronize()
def writes_while_replaying():
    with torch.cuda.stream(low): tiny(900)
    with torch.cuda.stream(high):
        for _ in range(3): bert.replay()
    for i in range(200): write(other,i)
    torch.cuda.synchronize()


wide=torch.zeros(1<<22,device="cuda"); s2_=torch.zeros(1024,device="cuda")
lows=torch.cuda.Stream(priority=0); mids=torch.cuda.Stream(priority=-1); tops=torch.cuda.Stream(priority=-3)
for q in (lows,mids,tops): on(q,lambda: s2_.add_(1)); on(q,lambda: wide.add_(1))
on(low,lambda: wide.add_(1))
def two(n,a_=low,b_=lows,spin_cycles=10_000_000,what=lambda: s2_.add_(1),order="by turns"):
    def g():
        for q in (a_,b_):
            with torch.cuda.stream(q): torch.cuda._sleep(spin_cycles)
        if order=="by turns":
            for i in range(n):
                with torch.cuda.stream(a_): small.add_(1)
                with torch.cuda.stream(b_): what()
        else:
            for q,f in ((a_,lambda: small.add_(1)),(b_,what)):
                with torch.cuda.stream(q):
                    for i in range(n): f()
        torch.cuda.synchronize()
    return g
def handing(n,a_=low,b_=lows,k=5):
    def g():
        with torch.cuda.stream(a_): torch.cuda._sleep(4_000_000)
        for _ in range(k):
            for q,o in ((a_,b_),(b_,a_)):
                with torch.cuda.stream(q):
                    for i in range(n): small.add_(1)
                    e=torch.cuda.Event(); e.record()
                o.wait_event(e)
        torch.cuda.synchronize()
    return g
C={"1000 each, 0 and 0":two(1000),"300 each, 0 and 0":two(300),"100 each, 0 and 0":two(100),"30 each, 0 and 0":two(30),"1000 each, 0 and -1":two(1000,low,mids),"1000 each, 0 and -3":two(1000,low,tops),"1000 each, -1 and -1":two(1000,high,mids),
 "1000 each, -1 and -3":two(1000,high,tops),"1000 each, one after the other":two(1000,order="x"),"1000 each, no spin":two(1000,spin_cycles=10),"300 each, wide":two(300,what=lambda: wide.add_(1)),"300 each wide, 0 and -1":two(300,low,mids,what=lambda: wide.add_(1)),
 "handed over 5 x 100, 0 and 0":handing(100),"handed over 5 x 100, 0 and -1":handing(100,low,mids)}
print("at first",[round(v) for v in times(bert,8)],flush=True)
for turn in range(2):
  for name,f in C.items():
    out=[]
    for _ in range(2):
        x.x_preempt(); c=med(n=5); f(); out.append((round(c),round(med(n=5))))
    print(f"{name:44s} {sum(o[1]>715 for o in out)} of 2 {out}",flush=True)
