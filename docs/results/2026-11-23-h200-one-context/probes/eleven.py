"""Launches behind a wait in one stream and launches in another, as markers and what goes on after a stop; stamps around a graph beside launches."""
from alone import torch, bert, brings, high, low, on, small, tiny
from streams import streams, wait, word, write
wide=torch.zeros(1<<22,device="cuda"); s2_=torch.zeros(1024,device="cuda")
res=streams[1]
on(res,lambda: s2_.add_(1)); on(high,lambda: s2_.add_(1))
def behind(n,m,of=res,release_first=False):
    """n launches behind a wait in low, m launches in another stream meanwhile."""
    def g():
        word[0]=0; torch.cuda.synchronize(); wait(low,7)
        with torch.cuda.stream(low): tiny(n)
        if release_first: word[0]=7
        with torch.cuda.stream(of):
            for _ in range(m): s2_.add_(1)
        if not release_first: of.synchronize()
        word[0]=7; torch.cuda.synchronize()
    return g
def marker(n,k=5):
    """As a stop at a marker: n launches, a wait, n launches; another stream runs n and releases it."""
    def g():
        for i in range(k):
            word[0]=0; torch.cuda.synchronize()
            with torch.cuda.stream(low): tiny(n)
            wait(low,7)
            with torch.cuda.stream(low): tiny(n)
            with torch.cuda.stream(res):
                for _ in range(n): s2_.add_(1)
            write(res,7,0)
            torch.cuda.synchronize()
    return g
def stamped(n,before=1,after=1,graph=True,kernel=lambda: small.add_(1)):
    def g():
        with torch.cuda.stream(low):
            for _ in range(n): kernel()
        with torch.cuda.stream(high):
            for _ in range(before): s2_.add_(1)
            if graph: bert.replay()
            for _ in range(after): s2_.add_(1)
        torch.cuda.synchronize()
    return g
def often(f,k=20):
    def g():
        for _ in range(k): f()
    return g
C={"nothing":lambda: None,"300 behind a wait alone":behind(300,0),"300 behind a wait, 1 elsewhere":behind(300,1),"300 behind a wait, 30 elsewhere":behind(300,30),"300 behind a wait, 300 elsewhere":behind(300,300),"300 behind a wait, released, 300 elsewhere":behind(300,300,release_first=True),
 "1 behind a wait, 300 elsewhere":behind(1,300),"30 behind a wait, 30 elsewhere":behind(30,30),"marker 300":marker(300,1),"marker 30 x 5":marker(30),"marker 3 x 5":marker(3),
 "300 low, graph":stamped(300,0,0),"300 low, stamp graph stamp":stamped(300),"300 low, graph stamp":stamped(300,0,1),"300 low, stamp graph":stamped(300,1,0),"300 low, stamp alone":stamped(300,1,0,False),"1 low, stamp graph stamp x 20":often(stamped(1)),"10 low, stamp graph stamp x 20":often(stamped(10)),"10 wide low, stamp graph stamp x 20":often(stamped(10,kernel=lambda: wide.add_(1))),
 "10 wide low, graph x 20":often(stamped(10,0,0,kernel=lambda: wide.add_(1))),"300 low, 10 stamps":stamped(300,10,0,False)}
brings(C,3)
