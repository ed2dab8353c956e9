"""The same through graphs: what was stopped going on as a graph, stamps as graphs; how many launches elsewhere it takes."""
import ctypes, time
from alone import torch, bert, brings, capture, high, low, on, small, tiny
from streams import cu, streams, wait, word, write
V=ctypes.c_void_p
wide=torch.zeros(1<<22,device="cuda"); s2_=torch.zeros(1024,device="cuda")
res=streams[1]; on(res,lambda: s2_.add_(1)); on(high,lambda: s2_.add_(1))
def ok(e): assert e==0,e
took=[]
def as_graph(n,stream=res,f=lambda: s2_.add_(1)):
    t0=time.perf_counter(); g=V(); x=V(); s=V(stream.cuda_stream)
    ok(cu.cuStreamBeginCapture_v2(s,2))
    with torch.cuda.stream(stream):
        for _ in range(n): f()
    ok(cu.cuStreamEndCapture(s,ctypes.byref(g)))
    t1=time.perf_counter(); ok(cu.cuGraphInstantiateWithFlags(ctypes.byref(x),g,ctypes.c_ulonglong(0))); t2=time.perf_counter()
    ok(cu.cuGraphLaunch(x,s)); t3=time.perf_counter(); ok(cu.cuGraphExecDestroy(x)); ok(cu.cuGraphDestroy(g)); t4=time.perf_counter()
    took.append([round((b-a)*1e6,1) for a,b in ((t0,t1),(t1,t2),(t2,t3),(t3,t4))])
def plain(n):
    with torch.cuda.stream(res):
        for _ in range(n): s2_.add_(1)
def behind(n,f,k=1,after=0):
    def g():
        took.clear()
        for _ in range(k):
            word[0]=0; torch.cuda.synchronize(); wait(low,7)
            with torch.cuda.stream(low): tiny(n)
            f(); res.synchronize()
            write(res,7,0)
            with torch.cuda.stream(low): tiny(after)
            torch.cuda.synchronize()
        if took: print("   capture, instantiate, launch, destroy us",took[:3],flush=True)
    return g
stamp=capture(lambda: s2_.add_(1))
def stamped(n,k=20,stamps=stamp,kernel=lambda: small.add_(1),training=None):
    def g():
        for _ in range(k):
            with torch.cuda.stream(low):
                if training: training()
                else:
                    for _ in range(n): kernel()
            with torch.cuda.stream(high):
                if stamps: stamps.replay()
                bert.replay()
                if stamps: stamps.replay()
            torch.cuda.synchronize()
    return g
train=capture(lambda: tiny(100),low)
def eager(training,n=100,k=10):
    def g():
        for _ in range(k):
            with torch.cuda.stream(low): training()
            with torch.cuda.stream(high):
                for _ in range(n): s2_.add_(1)
            torch.cuda.synchronize()
    return g
C={"nothing":lambda: None}
for n in (2,4,8,16): C[f"300 behind a wait, {n} elsewhere"]=behind(300,lambda n=n: plain(n))
C["8 behind a wait, 8 elsewhere"]=behind(8,lambda: plain(8)); C["30 behind a wait, 1 elsewhere, x 30"]=behind(30,lambda: plain(1),30)
for n in (1,3,30,200): C[f"300 behind a wait, graph of {n} elsewhere"]=behind(300,lambda n=n: as_graph(n))
C["30 behind a wait, graph of 3 elsewhere, x 30"]=behind(30,lambda: as_graph(3),30,20)
C["10 low, graph stamp graph stamp x 20"]=stamped(10)
C["10 wide low, same x 20"]=stamped(10,kernel=lambda: wide.add_(1))
C["100 low, same x 20"]=stamped(100)
C["low a graph, launches on high"]=eager(lambda: train.replay()); C["low a graph, graphs on high"]=stamped(0,training=lambda: train.replay())
C["100 low, 100 high"]=eager(lambda: tiny(100))
brings(C,3)
