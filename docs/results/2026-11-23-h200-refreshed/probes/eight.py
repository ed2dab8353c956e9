"""What does not bring the state about: waits, values, copies, a graph beside launches."""
import threading
from alone import torch, bert, brings, high, low, tiny
from streams import d8, h8, other, park, replays, streams, wait, word, write
def held(f,hold,n=1):
    """f while n streams are held; what high took meanwhile."""
    def g():
        word[0]=0
        for q in streams[:n]: hold(q,7)
        timer=threading.Timer(0.3,lambda: word.__setitem__(0,7)); timer.start()
        r=f(); word[0]=7; timer.cancel(); torch.cuda.synchronize(); return r
    return g
def tinies():
    with torch.cuda.stream(high): tiny(300)
    high.synchronize()
def crossing():
    with torch.cuda.stream(high): bert.replay(); e=torch.cuda.Event(); e.record()
    low.wait_event(e)
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
def low_and_copies():
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
C={"nothing":lambda:None,"1 stream waits, high replays":held(replays,wait,1),"4 streams wait, high replays":held(replays,wait,4),"1 stream waits, 300 launches on high":held(tinies,wait,1),
 "1 kernel waits, high replays":held(replays,park,1),"4 kernels wait, high replays":held(replays,park,4),"1 kernel waits, 300 launches on high":held(tinies,park,1),
 "low waits for high, high goes on":crossing,"600 launches on low, high replays":both,"high replays, 50 values written":with_writes,"300 launches on low, 50 values written":low_and_writes,
 "300 launches on low, 50 copies":low_and_copies,"all of it":writes_while_replaying}
brings(C,4)
