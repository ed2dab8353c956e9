"""How much is to be launched, and where, to bring the state about."""
from alone import torch, training_models, x, bert, brings, default, high, low, m, med, small
from streams import replays, streams
def deep(n,stream=low,spin_cycles=10_000_000,replay=False,kernel=None):
    def g():
        with torch.cuda.stream(stream):
            if spin_cycles: torch.cuda._sleep(spin_cycles)
            for _ in range(n): (kernel or (lambda: small.add_(1)))()
        r=replays(4) if replay else None
        torch.cuda.synchronize(); return r
    return g
wide=torch.zeros(1<<22,device="cuda")
def graphs(n):
    with torch.cuda.stream(high):
        torch.cuda._sleep(10_000_000)
        for _ in range(n): bert.replay()
    torch.cuda.synchronize()
def mixed(n):
    torch.cuda.synchronize()
    with torch.cuda.stream(low): torch.cuda._sleep(10_000_000)
    with torch.cuda.stream(streams[1]): torch.cuda._sleep(10_000_000)
    for i in range(n):
        with torch.cuda.stream(low): small.add_(1)
        with torch.cuda.stream(streams[1]): wide.add_(1)
    torch.cuda.synchronize()
C={"nothing":lambda:None,"100 behind 5 ms, low":deep(100),"1000 behind 5 ms, low":deep(1000),"3000 behind 5 ms, low":deep(3000),"3000 on low":deep(3000,spin_cycles=0),"3000 behind 5 ms, high":deep(3000,high),"3000 on high":deep(3000,high,0),
 "1000 behind 5 ms, low, high replays":deep(1000,replay=True),"3000 behind 5 ms, default":deep(3000,default),"10000 on low":deep(10000,spin_cycles=0),"500 wide behind 5 ms, low":deep(500,kernel=lambda: wide.add_(1)),
 "30 graphs behind 5 ms":lambda: graphs(30),"1000 each behind 5 ms on two":lambda: mixed(1000),"matmuls":deep(300,kernel=lambda: torch.mm(m,m,out=mo),spin_cycles=0),"30 ms spin low, high replays":deep(0,spin_cycles=60_000_000,replay=True)}
mo=torch.empty_like(m); torch.mm(m,m,out=mo); torch.cuda.synchronize()
brings(C,3)
for i in range(2):
    x.x_preempt(); med(); t=training_models.build("pointnet"); torch.cuda.synchronize(); print("build pointnet",round(med()),flush=True)
