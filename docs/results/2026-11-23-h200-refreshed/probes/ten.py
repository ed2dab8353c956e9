"""Launches that wait in two streams: how many, of what priorities, handed over or at once."""
from alone import torch, brings, high, low, on, small
import streams  # nothing of it: as in nine.py, those are there
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
brings(C,2)
