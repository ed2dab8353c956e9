"""More streams of that process, and what has them wait."""
import ctypes, statistics as st, cupy
from alone import torch, a, b, bert, high, low, on, tiny
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
d8=torch.zeros(8,device="cuda"); h8=torch.zeros(8).pin_memory(); other=torch.cuda.Stream(priority=-2)
def replays(n=6):
    us=[]
    with torch.cuda.stream(high):
        for _ in range(n): a.record(); bert.replay(); b.record(); b.synchronize(); us.append(a.elapsed_time(b)*1e3)
    return round(st.median(us[1:]))
