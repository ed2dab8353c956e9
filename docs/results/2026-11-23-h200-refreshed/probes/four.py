"""What the state costs graphs of different kernels, what it depends on, and what does not bring it about."""
import subprocess, statistics as st, time, cupy
from alone import torch, training_models, x, static, run, high, low, capture, bert, a, b, times, med, m, small, on, tiny
def batch(n,g=bert):
    out=[]
    with torch.cuda.stream(high):
        for _ in range(6):
            a.record()
            for _ in range(n): g.replay()
            b.record(); torch.cuda.synchronize(); out.append(a.elapsed_time(b)*1e3)
    return round(st.median(out))
def state(): return "DIRTY" if med()>715 else "clean"
t0=time.perf_counter()
def say(*w): print(f"[{time.perf_counter()-t0:6.2f}]",*w,flush=True)
say("at first",[round(v) for v in times(bert,8)],state())
big=torch.zeros(1<<26,device="cuda"); v=torch.zeros(1<<20,device="cuda"); sm=torch.randn(1024,1024,device="cuda",dtype=torch.bfloat16); s2=torch.randn(256,256,device="cuda",dtype=torch.bfloat16)
mid_=torch.zeros(132*1024,device="cuda")
def rep(n,f):
    def g():
        for _ in range(n): f()
    return g
G={"bert":bert,"300 add of 1024":capture(rep(300,lambda: small.add_(1))),"3000 add of 1024":capture(rep(3000,lambda: small.add_(1))),"300 add of 135168":capture(rep(300,lambda: mid_.add_(1))),"100 add of 1M":capture(rep(100,lambda: v.add_(1))),"10 add of 64M":capture(rep(10,lambda: big.add_(1))),
 "3 matmul 4096":capture(rep(3,lambda: m@m)),"100 matmul 1024":capture(rep(100,lambda: sm@sm)),"200 matmul 256":capture(rep(200,lambda: s2@s2)),"100 softmax":capture(rep(100,lambda: torch.softmax(sm,-1))),"100 layernorm":capture(rep(100,lambda: torch.nn.functional.layer_norm(sm,(1024,))))}
say("graphs made",state())
def look(label):
    say(label,state(),"replays at once",{n:batch(n) for n in (1,2,4,8)},state())
    say(label,{k:round(med(g)) for k,g in G.items()},state())
    with torch.inference_mode(), torch.cuda.stream(high):
        us=[]
        for _ in range(8):
            torch.cuda._sleep(20_000_000)  # the host is ahead
            a.record(); run(*static); b.record(); torch.cuda.synchronize(); us.append(a.elapsed_time(b)*1e3)
    say(label,"without a graph, the host ahead",round(st.median(us)),state())
    # the context is never idle: a kernel on low spins
    with torch.cuda.stream(low): torch.cuda._sleep(60_000_000)
    us=[]
    with torch.cuda.stream(high):
        for _ in range(12):
            a.record(); bert.replay(); b.record(); b.synchronize(); us.append(round(a.elapsed_time(b)*1e3))
    torch.cuda.synchronize(); say(label,"beside a kernel that spins",us,state())
for _ in range(2): look("first state")
x.x_preempt(); say("preempted",state())
for _ in range(2): look("preempted")
tr=None
def build():
    global tr
    tr=training_models.build("pointnet")
n=[0]
def newmodule():
    n[0]+=1
    k=cupy.RawKernel('extern "C" __global__ void k%d(int* p){ if (p) *p=%d; }'%(n[0],n[0]),"k%d"%n[0])
    with cupy.cuda.ExternalStream(high.cuda_stream): k((1,),(1,),(0,))
def bigstack():
    n[0]+=1
    k=cupy.RawKernel('extern "C" __global__ void k%d(int* p,int i){ volatile char c[%d]; c[i]=1; if (p) *p=c[i/2]; }'%(n[0],4096*n[0]),"k%d"%n[0])
    with cupy.cuda.ExternalStream(high.cuda_stream): k((1,),(1,),(0,3))
ops=[torch.erfinv,torch.lgamma,torch.digamma,torch.asinh,torch.sinc,torch.log1p,torch.cosh,torch.atan,torch.expm1,torch.rsqrt]
keep=[]
def malloc():
    p=cupy.cuda.runtime.malloc(1<<30); keep.append(p)
def free():
    if keep: cupy.cuda.runtime.free(keep.pop())
T={"nothing":lambda:None,"nvidia-smi":lambda: subprocess.run(["nvidia-smi","--query-gpu=clocks.sm","--format=csv"],stdout=subprocess.DEVNULL),
 "new module":newmodule,"larger stack":bigstack,"new torch kernel":lambda: on(high,lambda: ops.pop()(small)),"cudaMalloc 1 GiB":malloc,"cudaFree":free,
 "small malloc":lambda: keep.append(cupy.cuda.runtime.malloc(1<<12)),"pinned":lambda: cupy.cuda.runtime.hostAlloc(1<<22,0),"new stream":lambda: on(torch.cuda.Stream(priority=-2),lambda: tiny(1)),
 "capture":lambda: keep.append(capture(lambda: run(*static))) if False else capture(lambda: run(*static)),"sleep 0.5":lambda: time.sleep(0.5),"limit":lambda: cupy.cuda.runtime.deviceSetLimit(0,(n[0]+8)*1024),
 "d2h":lambda: big[:1<<20].cpu(),"p2h big":lambda: m.cpu(),"cooperative/spin":lambda: on(low,lambda: torch.cuda._sleep(100000)),"build pointnet":build,"pointnet steps low":lambda: on(low,lambda:[tr.step()() for _ in range(3)]),
 "event timing create":lambda: torch.cuda.Event(enable_timing=True).record(), "ipc event":lambda: torch.cuda.Event(interprocess=True).record()}
for name,f in T.items():
    out=[]
    for _ in range(3 if name!="build pointnet" else 1):
        if state()=="DIRTY": x.x_preempt(); med()
        was=state()
        try: f(); torch.cuda.synchronize()
        except Exception as e: out.append(repr(e)[:80])
        out.append(was+">"+state())
    say("brings?",name,out)
end=time.perf_counter()+10; was=None
while time.perf_counter()<end:
    s=state()
    if s!=was: say("by itself",s); was=s
    if s=="DIRTY": time.sleep(0.3); say("still",state()); x.x_preempt(); say("preempted",state())
    time.sleep(0.01)
