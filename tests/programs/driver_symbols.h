// For programs about the driver API itself: every exported function under its own name and ABI, as dlsym finds it, and
// checks of single calls. Such a program is a list of checks; each one that is not met is printed with its line, and
// the program goes on: one run says everything.
//
// Handles that are nonsense, and null where the documentation does not speak of it, may only be passed under Tally: the
// native driver follows them (IsTally()).
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // cuda.h then declares each ABI under its exported name
#include <cuda.h>
#include <cudaProfiler.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include "tests/programs/check.h"

namespace check {

inline void* DriverSymbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) Fail("cannot open libcuda.so.1: %s", dlerror());
  return dlsym(library, name);
}

template <class Function>
Function* DriverFunction(const char* name) {
  void* const symbol = DriverSymbol(name);
  if (symbol == nullptr) Fail("the driver does not export %s", name);
  return reinterpret_cast<Function*>(symbol);
}

inline bool IsTally() { return DriverSymbol("tally_shim_marker") != nullptr; }

struct Progress {
  int num_unmet = 0;
  char if_it_crashes[80] = {};  // what the check that is being made would say
};
inline Progress& ProgressOfChecks() {
  static Progress progress;
  return progress;
}
inline int Begin(int line) {
  Progress& progress = ProgressOfChecks();
  snprintf(progress.if_it_crashes, sizeof(progress.if_it_crashes), "FAILED: line %d: segmentation fault\n", line);
  return line;
}
inline void SayWhere(int) {
  const char* text = ProgressOfChecks().if_it_crashes;
  _exit(write(STDOUT_FILENO, text, strlen(text)) < 0 ? 2 : 1);
}

inline void NoteUnmet(int line, const char* text, const char* what) {
  ++ProgressOfChecks().num_unmet;
  printf("line %d: %s: %s\n", line, text, what);
  fflush(stdout);
}
inline void ExpectCode(int line, CUresult wanted, CUresult got, const char* call) {
  if (got == wanted) return;
  char what[64];
  snprintf(what, sizeof(what), "driver error %d, expected %d", static_cast<int>(got), static_cast<int>(wanted));
  NoteUnmet(line, call, what);
}
// Where the documentation leaves open which error it is.
inline void ExpectFailure(int line, CUresult got, const char* call) {
  if (got == CUDA_SUCCESS) NoteUnmet(line, call, "succeeded");
}
inline void ExpectTrue(int line, bool condition, const char* text) {
  if (!condition) NoteUnmet(line, text, "not so");
}

// Such a program's results: how many checks were not met.
inline int RunDriverProgram(int argc, char** argv, void (*checks)()) {
  static void (*all_checks)() = checks;
  signal(SIGSEGV, SayWhere);
  return RunProgram(
      argc, argv, [](Results& results) { results.AddValue<int>("checks met", 1); },
      [](Results& results) {
        all_checks();
        if (const int num_unmet = ProgressOfChecks().num_unmet; num_unmet != 0) Fail("%d checks not met", num_unmet);
        results.AddValue<int>("checks met", 1);
      });
}

// The kernels that these programs load: PTX, so that modules can be made of it in every way.
inline const char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .const .align 4 .u32 scale = 3;
// data[i] = data[i] * scale + addend, for one block
.visible .entry Scale(.param .u64 data, .param .u32 addend)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [addend];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  ld.const.u32 %r4, [scale];
  mad.lo.u32 %r5, %r3, %r4, %r1;
  st.global.u32 [%rd3], %r5;
  ret;
}
.visible .entry Nothing() { ret; }
)";

}  // namespace check

#define DRIVER(name) (*::check::DriverFunction<decltype(name)>(#name))
#define EXPECT_CODE(code, call) (::check::Begin(__LINE__), ::check::ExpectCode(__LINE__, (code), (call), #call))
#define OK(call) EXPECT_CODE(CUDA_SUCCESS, call)
#define INVALID(call) EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, call)
#define FAILS(call) (::check::Begin(__LINE__), ::check::ExpectFailure(__LINE__, (call), #call))
#define EXPECT(condition) (::check::Begin(__LINE__), ::check::ExpectTrue(__LINE__, (condition), #condition))

namespace check {

// Initialises the driver and makes the primary context of device 0 current until the end.
class PrimaryContext {
 public:
  PrimaryContext() {
    OK(DRIVER(cuInit)(0));
    OK(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0));
    OK(DRIVER(cuCtxSetCurrent)(context_));
  }
  ~PrimaryContext() { OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(0)); }
  CUcontext get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
};

// kPtx, loaded.
class PtxModule {
 public:
  PtxModule() { OK(DRIVER(cuModuleLoadData)(&module_, kPtx)); }
  ~PtxModule() { OK(DRIVER(cuModuleUnload)(module_)); }
  CUmodule get() const { return module_; }
  CUfunction Function(const char* name) const {
    CUfunction function = nullptr;
    OK(DRIVER(cuModuleGetFunction)(&function, module_, name));
    return function;
  }

 private:
  CUmodule module_ = nullptr;
};

}  // namespace check
