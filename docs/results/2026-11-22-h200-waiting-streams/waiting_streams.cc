// Each case in a process of its own: with a stream that waits for a value, does a driver call come back, and may
// another thread launch meanwhile?
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>
#define C(x)                       \
  do {                             \
    CUresult r_ = (x);             \
    if (r_) {                      \
      printf("%s = %d\n", #x, r_); \
      fflush(stdout);              \
      _exit(1);                    \
    }                              \
  } while (0)
static const char* kPtx =
    ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry nop() { ret; }\n.visible .entry nop2() { ret; }\n";
static const char* kPtx2 = ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry nop3() { ret; }\n";
static CUfunction f, f2;
static CUcontext ctx;
static volatile uint32_t* word;
static CUdeviceptr dword;
using clk = std::chrono::steady_clock;
static double ms(clk::time_point a) { return std::chrono::duration<double, std::milli>(clk::now() - a).count(); }
static bool done(CUstream s, double limit) {
  auto t = clk::now();
  while (cuStreamQuery(s) == CUDA_ERROR_NOT_READY) {
    if (ms(t) > limit) return false;
  }
  return true;
}
static CUstream mk(int p) {
  CUstream s;
  C(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, p));
  return s;
}
static void launch(CUstream s, CUfunction k = f) { C(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, s, 0, 0)); }
static void one(const char* name, const std::function<std::function<void()>()>& prepare) {
  fflush(stdout);
  pid_t p = fork();
  if (p == 0) {
    alarm(8);
    C(cuInit(0));
    CUdevice d;
    C(cuDeviceGet(&d, 0));
    C(cuDevicePrimaryCtxRetain(&ctx, d));
    C(cuCtxSetCurrent(ctx));
    CUmodule m;
    C(cuModuleLoadData(&m, kPtx));
    C(cuModuleGetFunction(&f, m, "nop"));
    C(cuModuleGetFunction(&f2, m, "nop2"));
    void* h;
    C(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    word = (volatile uint32_t*)h;
    *word = 0;
    C(cuMemHostGetDevicePointer(&dword, h, 0));
    CUstream a = mk(0), b = mk(-1), c = mk(0);
    launch(a);
    launch(b);
    launch(c);
    C(cuCtxSynchronize());
    auto action = prepare();
    C(cuCtxSynchronize());
    C(cuStreamWaitValue32(a, dword, 1, CU_STREAM_WAIT_VALUE_GEQ));
    std::atomic<double> took{-1};
    auto t0 = clk::now();
    std::thread t([&] {
      cuCtxSetCurrent(ctx);
      action();
      took = ms(t0);
    });
    usleep(150000);
    std::atomic<int> stage{0};
    std::thread u([&] {
      cuCtxSetCurrent(ctx);
      launch(b);
      stage = 1;
      if (done(b, 50)) stage = 2;
    });
    usleep(150000);
    printf("%-34s %s; another thread's launch meanwhile %s\n", name,
           took >= 0 ? (std::to_string(took.load()) + " ms").c_str() : "WAITS",
           stage == 2   ? "runs"
           : stage == 1 ? "does not run"
                        : "WAITS, too");
    fflush(stdout);
    *word = 1;
    t.join();
    u.join();
    _exit(0);
  }
  int st;
  waitpid(p, &st, 0);
  if (WIFSIGNALED(st)) {
    printf("%-34s stuck for good (signal %d)\n", name, WTERMSIG(st));
    fflush(stdout);
  }
}
int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  printf("connections %s\n", getenv("CUDA_DEVICE_MAX_CONNECTIONS") ?: "default");
  one("nothing", [] { return [] {}; });
  one("create a stream", [] { return [] { mk(0); }; });
  one("create streams of priorities", [] {
    return [] {
      for (int p = 0; p >= -5; --p) mk(p);
    };
  });
  one("create 64 streams", [] {
    return [] {
      for (int i = 0; i < 64; ++i) mk(0);
    };
  });
  one("destroy a stream", [] {
    CUstream s = mk(0);
    return [s] { cuStreamDestroy(s); };
  });
  one("cuMemAlloc 1 MB", [] {
    return [] {
      CUdeviceptr p;
      C(cuMemAlloc(&p, 1 << 20));
    };
  });
  one("cuMemAlloc 256 MB", [] {
    return [] {
      CUdeviceptr p;
      C(cuMemAlloc(&p, 256 << 20));
    };
  });
  one("cuMemFree 1 MB", [] {
    CUdeviceptr p;
    C(cuMemAlloc(&p, 1 << 20));
    return [p] { cuMemFree(p); };
  });
  one("cuMemFree 256 MB", [] {
    CUdeviceptr p;
    C(cuMemAlloc(&p, 256 << 20));
    return [p] { cuMemFree(p); };
  });
  one("cuMemHostAlloc", [] {
    return [] {
      void* p;
      C(cuMemHostAlloc(&p, 1 << 20, 0));
    };
  });
  one("cuMemFreeHost", [] {
    void* p;
    C(cuMemHostAlloc(&p, 1 << 20, 0));
    return [p] { cuMemFreeHost(p); };
  });
  one("cuMemHostRegister", [] {
    return [] {
      void* p = aligned_alloc(4096, 1 << 20);
      memset(p, 0, 1 << 20);
      C(cuMemHostRegister(p, 1 << 20, 0));
    };
  });
  one("cuModuleLoadData", [] {
    return [] {
      CUmodule m;
      C(cuModuleLoadData(&m, kPtx2));
    };
  });
  one("load a module and launch", [] {
    return [] {
      CUmodule m;
      CUfunction g;
      C(cuModuleLoadData(&m, kPtx2));
      C(cuModuleGetFunction(&g, m, "nop3"));
      launch(mk(0), g);
    };
  });
  one("first launch of a kernel", [] {
    CUstream s = mk(0);
    return [s] { launch(s, f2); };
  });
  one("cuFuncLoad", [] { return [] { cuFuncLoad(f2); }; });
  one("cuModuleUnload", [] {
    CUmodule m;
    C(cuModuleLoadData(&m, kPtx2));
    return [m] { cuModuleUnload(m); };
  });
  one("cuMemcpyHtoD", [] {
    CUdeviceptr p;
    C(cuMemAlloc(&p, 1 << 20));
    return [p] {
      static char x[4096];
      cuMemcpyHtoD(p, x, 4096);
    };
  });
  one("cuEventCreate, record, destroy", [] {
    CUstream s = mk(0);
    return [s] {
      CUevent e;
      C(cuEventCreate(&e, 0));
      cuEventRecord(e, s);
      cuEventDestroy(e);
    };
  });
  one("cuMemAllocAsync, cuMemFreeAsync", [] {
    CUstream s = mk(0);
    return [s] {
      CUdeviceptr p;
      C(cuMemAllocAsync(&p, 1 << 20, s));
      cuMemFreeAsync(p, s);
    };
  });
  one("graph: instantiate and launch", [] {
    CUstream s = mk(0);
    return [s] {
      CUgraph g;
      CUgraphExec x;
      C(cuGraphCreate(&g, 0));
      CUDA_KERNEL_NODE_PARAMS k{};
      k.func = f;
      k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
      CUgraphNode n;
      C(cuGraphAddKernelNode(&n, g, 0, 0, &k));
      C(cuGraphInstantiate(&x, g, 0));
      cuGraphLaunch(x, s);
    };
  });
  one("fill the waiting stream's channel", [] {
    CUstream s = mk(0);
    return [s] {
      C(cuStreamWaitValue32(s, dword, 1, CU_STREAM_WAIT_VALUE_GEQ));
      for (int i = 0; i < 6000; ++i) launch(s);
    };
  });
  one("79 other streams launch", [] {
    std::vector<CUstream> v;
    for (int i = 0; i < 79; ++i) v.push_back(mk(0));
    return [v] {
      int n = 0;
      for (auto s : v) launch(s);
      for (auto s : v) n += !done(s, 0.5);
      printf("  %d of 79 ordinary streams wait, too\n", n);
    };
  });
  one("all wait; others by priority", [] {
    std::vector<CUstream> v, o;
    for (int i = 0; i < 80; ++i) v.push_back(mk(0));
    for (int i = 0; i < 50; ++i) o.push_back(mk(-1 - i % 5));
    return [v, o] {
      for (auto s : v) C(cuStreamWaitValue32(s, dword, 1, CU_STREAM_WAIT_VALUE_GEQ));
      int n[5] = {};
      for (auto s : o) launch(s);
      for (int i = 0; i < 50; ++i) n[i % 5] += !done(o[i], 0.5);
      printf("  waiting of 10 each at priority -1 to -5: %d %d %d %d %d\n", n[0], n[1], n[2], n[3], n[4]);
    };
  });
}
