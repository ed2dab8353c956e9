"""Natively: what the graph takes once another stream was used, what the SM clock does then, and what ends it."""
import sys, statistics as st, ctypes, time, subprocess
sys.path[:0]=["/tmp/tally-bundle/bench/colocation","/tmp/tally-bundle/bench/support"]
import torch, inference_models, training_models
x=ctypes.CDLL(None)
print("preload", x.x_groups(), flush=True)
torch.manual_seed(0)
with torch.device("cuda"): run, make = inference_models.NETWORKS["bert"]()
static=tuple(p.cuda() for p in make())
high=torch.cuda.Stream(priority=-1); low=torch.cuda.Stream(priority=0)
with torch.inference_mode(), torch.cuda.stream(high):
    for _ in range(5): run(*static)
    torch.cuda.synchronize()
    g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g,stream=high): out=run(*static)
SRC=r'''
extern "C" __global__ void clk(unsigned long long* o, unsigned long long n) {
  unsigned long long t0, t1, c0, c1;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0)); do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1)); } while (t1 == t0); t0 = t1;
  asm volatile("mov.u64 %0, %clock64;" : "=l"(c0));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1)); } while (t1 - t0 < n);
  asm volatile("mov.u64 %0, %clock64;" : "=l"(c1));
  o[0] = c1 - c0; o[1] = t1 - t0;
}'''
import cupy
clk=cupy.RawKernel(SRC,"clk"); 
out=torch.zeros(2,dtype=torch.int64,device="cuda"); torch.cuda.synchronize()
def clock_mhz():
    with cupy.cuda.ExternalStream(high.cuda_stream):
        clk((1,),(1,),(out.data_ptr(),200000))
    torch.cuda.synchronize(); c,n=out.tolist(); return round(c*1e3/n)
clock_mhz()
a,b=(torch.cuda.Event(enable_timing=True) for _ in range(2))
def measure(label,n=16,clock=True):
    us=[]; mhz=[]
    with torch.cuda.stream(high):
        for i in range(n):
            a.record(); g.replay(); b.record()
            if clock and i%4==3:
                with cupy.cuda.ExternalStream(high.cuda_stream): clk((1,),(1,),(out.data_ptr(),100000))
            torch.cuda.synchronize(); us.append(round(a.elapsed_time(b)*1e3))
            if clock and i%4==3:
                # through the driver's own copy; no other stream is used than high
                c,nn=out.tolist(); mhz.append(round(c*1e3/nn))
    print(f"{label:44s} first {us[0]:5d} median of the others {st.median(us[1:]):6.1f} {us[1:9]} MHz {mhz}",flush=True)
m=torch.randn(2048,2048,device="cuda",dtype=torch.bfloat16); torch.cuda.synchronize()
with torch.cuda.stream(low): m@m
torch.cuda.synchronize()
def dirty():
    with torch.cuda.stream(low): m@m
    torch.cuda.synchronize()
other="import torch;x=torch.ones(8,device='cuda');x+=1;torch.cuda.synchronize()"
def process():
    subprocess.run([sys.executable,"-c",other],env={k:v for k,v in __import__('os').environ.items() if k!="LD_PRELOAD"},timeout=60)
for r in range(3):
    measure("as it comes, no clock",60,False)
    measure("as it comes",60)
print("groups",x.x_groups(),flush=True)
for name in sys.argv[1].split(","):
  for r in range(2):
    if name=="process": process()
    measure(f"{name} {r}: before",16)
    dirty(); measure(f"{name} {r}: after matmul on low",16,False); measure(f"{name} {r}: again",16)
    t=time.perf_counter()
    if name=="sleep": time.sleep(1)
    elif name=="process": process()
    elif name=="idle3ms": time.sleep(0.003)
    elif name=="offon": print(x.x_off(), end=" "); print(x.x_on(), end=" ")
    elif name=="many": measure("   400 more",400,False)
    else: print(getattr(x,"x_"+name)(), end=" ")
    print("took us", round((time.perf_counter()-t)*1e6))
    measure(f"{name} {r}: then, no clock",16,False)
    measure(f"{name} {r}: then",16)
tr=training_models.build("pointnet")
def beside(label):
    us=[]
    for _ in range(6):
        with torch.cuda.stream(low): tr.step()()
        with torch.cuda.stream(high):
            for i in range(4):
                a.record(); g.replay(); b.record(); b.synchronize(); us.append(round(a.elapsed_time(b)*1e3))
    torch.cuda.synchronize(); print(label, us, flush=True)
beside("beside pointnet"); beside("beside pointnet")
measure("then"); print(x.x_preempt()); measure("preempted, then")
