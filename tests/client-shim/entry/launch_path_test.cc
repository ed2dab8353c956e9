// The law of the launch path: no lock, no allocation, no system call while the executor polls. The built library, in a
// process that counts the first two and may not make the third.
//
// malloc and the locks of this program replace the C library's for everything in it, libcuda.so.1 included. For system
// calls the child installs a seccomp filter after which any of them but exit_group kills it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>

#include "tests/client-shim/fake_executor.h"

namespace {

std::atomic<bool> g_is_counting{false};
std::atomic<int> g_num_allocations{0};
std::atomic<int> g_num_locks{0};

void Count(std::atomic<int>& counter) {
  if (g_is_counting.load(std::memory_order_relaxed)) counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void __libc_free(void*);

void* malloc(size_t size) {
  Count(g_num_allocations);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count(g_num_allocations);
  return __libc_calloc(count, size);
}
void* realloc(void* pointer, size_t size) {
  Count(g_num_allocations);
  return __libc_realloc(pointer, size);
}
void free(void* pointer) {
  Count(g_num_allocations);
  __libc_free(pointer);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  Count(g_num_locks);
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  Count(g_num_locks);
  static const auto real = reinterpret_cast<int (*)(pthread_rwlock_t*)>(::dlsym(RTLD_NEXT, "pthread_rwlock_rdlock"));
  return real(lock);
}
}

namespace tally::client_shim {
namespace {

constexpr uint64_t kModuleHandle = shm::MakeHandle(shm::HandleKind::kModule, 0, true, 1);
constexpr uint64_t kFunctionHandle = shm::MakeHandle(shm::HandleKind::kFunction, 0, true, 1);
constexpr uint64_t kStreamHandle = shm::MakeHandle(shm::HandleKind::kStream, 0, true, 1);
constexpr int kLaunches = 1000;  // their records fit into the ring: nothing depends on how fast it is read

void Script(FakeExecutor* executor) {
  executor->On(shm::Op::kLoadModule, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::LoadedImage{kModuleHandle, 0, 0});
  });
  executor->On(shm::Op::kCreateStream, [](const FakeRequest&, FakeReply* reply) { reply->Append(kStreamHandle); });
  executor->On(shm::Op::kGetFunction, [](const FakeRequest&, FakeReply* reply) {
    shm::KernelDescription description{};
    description.handle = kFunctionHandle;
    description.num_parameters = 2;
    description.parameter_bytes = 16;
    reply->Append(description);
    reply->Append(shm::ParameterLayout{0, 4});
    reply->Append(shm::ParameterLayout{8, 8});
  });
}

struct Bed {
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

bool Prepare(Bed* bed) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
  return SHIM(cuInit)(0) == CUDA_SUCCESS && SHIM(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS &&
         SHIM(cuCtxSetCurrent)(context) == CUDA_SUCCESS && SHIM(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS &&
         SHIM(cuModuleGetFunction)(&bed->function, module, "kernel") == CUDA_SUCCESS &&
         SHIM(cuStreamCreate)(&bed->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
         SHIM(cuEventCreate)(&bed->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

// What a program's inner loop calls. Returns whether all succeeded.
class Loop {
 public:
  explicit Loop(const Bed& bed)
      : bed_(bed),
        launch_(SHIM(cuLaunchKernel)),
        launch_ex_(SHIM(cuLaunchKernelEx)),
        record_(SHIM(cuEventRecord)),
        wait_(SHIM(cuStreamWaitEvent)) {}

  bool Run(int count) {
    int number = 5;
    void* pointer = &number;
    void* parameters[] = {&number, &pointer};
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = bed_.stream;
    bool good = true;
    for (int i = 0; i < count; ++i) {
      good &= launch_(bed_.function, 1, 1, 1, 32, 1, 1, 0, bed_.stream, parameters, nullptr) == CUDA_SUCCESS;
      good &= launch_(bed_.function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS;
      good &= launch_ex_(&config, bed_.function, parameters, nullptr) == CUDA_SUCCESS;
      good &= record_(bed_.event, bed_.stream) == CUDA_SUCCESS;
      good &= wait_(bed_.stream, bed_.event, 0) == CUDA_SUCCESS;
    }
    return good;
  }

 private:
  const Bed bed_;
  decltype(&::cuLaunchKernel) launch_;
  decltype(&::cuLaunchKernelEx) launch_ex_;
  decltype(&::cuEventRecord) record_;
  decltype(&::cuStreamWaitEvent) wait_;
};

// From here on any system call of this thread but exit_group is its last.
bool ForbidSystemCalls() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog filter{sizeof(program) / sizeof(program[0]), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

enum ChildStatus { kFine = 0, kNotSetUp = 10, kCallFailed = 11, kAllocates = 12, kLocks = 13 };

TEST(LaunchPath, AllocatesNothingAndTakesNoLock) {
  FakeExecutor executor;
  Script(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       []() -> int {
                         Bed bed;
                         if (!Prepare(&bed)) return kNotSetUp;
                         Loop loop(bed);
                         if (!loop.Run(3)) return kCallFailed;
                         g_is_counting = true;
                         const bool good = loop.Run(kLaunches / 5);
                         g_is_counting = false;
                         std::fprintf(stderr, "%d allocations, %d locks\n", g_num_allocations.load(),
                                      g_num_locks.load());
                         if (!good) return kCallFailed;
                         if (g_num_allocations != 0) return kAllocates;
                         return g_num_locks == 0 ? kFine : kLocks;
                       }),
            kFine);
}

TEST(LaunchPath, MakesNoSystemCall) {
  FakeExecutor executor;
  Script(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       []() -> int {
                         Bed bed;
                         if (!Prepare(&bed)) return kNotSetUp;
                         Loop loop(bed);
                         if (!loop.Run(3)) return kCallFailed;
                         if (!ForbidSystemCalls()) return kNotSetUp;
                         return loop.Run(kLaunches / 5) ? kFine : kCallFailed;
                       }),
            kFine)
      << "128 + SIGSYS (159) means that a call of the loop entered the kernel";
}

// That the traps work at all: a test that cannot fail proves nothing.
TEST(LaunchPath, TheTrapsCatchWhatTheyShould) {
  FakeExecutor executor;
  Script(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       []() -> int {
                         Bed bed;
                         if (!Prepare(&bed)) return kNotSetUp;
                         g_is_counting = true;
                         CUevent event = nullptr;  // has a name and a slot of its own: allocates
                         const CUresult result = SHIM(cuEventCreate)(&event, 0);
                         g_is_counting = false;
                         if (result != CUDA_SUCCESS) return kCallFailed;
                         return g_num_allocations > 0 && g_num_locks > 0 ? kFine : kAllocates;
                       }),
            kFine);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       []() -> int {
                         Bed bed;
                         if (!Prepare(&bed)) return kNotSetUp;
                         if (!ForbidSystemCalls()) return kNotSetUp;
                         ::syscall(SYS_getpid);
                         return kFine;
                       }),
            128 + SIGSYS);
}

}  // namespace
}  // namespace tally::client_shim
