// Modules through the driver API: PTX text loaded, its kernel launched with kernelParams and with an `extra` buffer,
// its global read and written, several modules with the same names side by side, two PTX files linked, and a syntax
// error that is refused with a log.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

// out[i] = i * factor + bias (a global of the module)
const char kScale[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 bias = 11;
.visible .entry Scale(.param .u64 out, .param .u32 factor)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [factor];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r2, %tid.x;
  ld.global.u32 %r3, [bias];
  mad.lo.u32 %r4, %r2, %r1, %r3;
  mul.wide.u32 %rd3, %r2, 4;
  add.u64 %rd3, %rd2, %rd3;
  st.global.u32 [%rd3], %r4;
  ret;
}
)";

const char kCaller[] = R"(
.version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) Twice(.param .b32 x);
.visible .entry CallTwice(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  {
  .param .b32 argument;
  .param .b32 returned;
  st.param.b32 [argument], %r1;
  call.uni (returned), Twice, (argument);
  ld.param.b32 %r2, [returned];
  }
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd3, %rd2, %rd3;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

const char kCallee[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) Twice(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x];
  add.u32 %r2, %r1, %r1;
  st.param.b32 [result], %r2;
  ret;
}
)";

const char kBroken[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry Broken() { mov.u99 %q; }\n";

constexpr int kThreads = 40;

void Reference(Results& results) {
  auto scaled = [](uint32_t factor, uint32_t bias) {
    std::vector<uint32_t> out(kThreads);
    for (uint32_t i = 0; i < kThreads; ++i) out[i] = i * factor + bias;
    return out;
  };
  results.Add("kernelParams", scaled(3, 11));
  results.Add("extra", scaled(5, 11));
  results.Add("global written", scaled(7, 1000));
  results.Add("second module", scaled(9, 11));
  results.AddValue<uint32_t>("global read", 1000);
  results.Add("linked", scaled(2, 0));
  results.AddValue<int>("syntax error", CUDA_ERROR_INVALID_PTX);
  results.AddValue<uint32_t>("its log", 1);
  results.AddValue<int>("library", 1);
}

void Device(Results& results) {
  CHECK_CUDA(cudaFree(nullptr));  // the runtime makes the primary context current
  check::DeviceBuffer<uint32_t> out(kThreads);
  auto launch = DRIVER_ENTRY(cuLaunchKernel);
  auto load = DRIVER_ENTRY(cuModuleLoadData);
  auto get_function = DRIVER_ENTRY(cuModuleGetFunction);
  CUmodule first, second;
  CUfunction scale, scale_of_second;
  CHECK_DRIVER(load(&first, kScale));
  CHECK_DRIVER(load(&second, kScale));
  CHECK_DRIVER(get_function(&scale, first, "Scale"));
  CHECK_DRIVER(get_function(&scale_of_second, second, "Scale"));

  CUdeviceptr out_pointer = reinterpret_cast<CUdeviceptr>(out.get());
  uint32_t factor = 3;
  void* parameters[] = {&out_pointer, &factor};
  CHECK_DRIVER(launch(scale, 1, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));
  results.Add("kernelParams", out.Download());

  struct {
    CUdeviceptr out;
    uint32_t factor;
  } packed = {out_pointer, 5};
  size_t packed_bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes,
                   CU_LAUNCH_PARAM_END};
  CHECK_DRIVER(launch(scale, 1, 1, 1, kThreads, 1, 1, 0, nullptr, nullptr, extra));
  results.Add("extra", out.Download());

  CUdeviceptr bias;
  size_t bias_bytes;
  CHECK_DRIVER(DRIVER_ENTRY(cuModuleGetGlobal)(&bias, &bias_bytes, first, "bias"));
  uint32_t thousand = 1000, read_back = 0;
  CHECK_DRIVER(DRIVER_ENTRY(cuMemcpyHtoD)(bias, &thousand, bias_bytes));
  factor = 7;
  CHECK_DRIVER(launch(scale, 1, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));
  results.Add("global written", out.Download());
  factor = 9;
  CHECK_DRIVER(launch(scale_of_second, 1, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));
  results.Add("second module", out.Download());
  CHECK_DRIVER(DRIVER_ENTRY(cuMemcpyDtoH)(&read_back, bias, 4));
  results.AddValue("global read", read_back);
  CHECK_DRIVER(DRIVER_ENTRY(cuModuleUnload)(first));
  CHECK_DRIVER(DRIVER_ENTRY(cuModuleUnload)(second));

  CUlinkState link;
  void* image;
  size_t image_bytes;
  CHECK_DRIVER(DRIVER_ENTRY(cuLinkCreate)(0, nullptr, nullptr, &link));
  auto add = DRIVER_ENTRY(cuLinkAddData);
  CHECK_DRIVER(add(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller), sizeof(kCaller), "caller", 0, nullptr, nullptr));
  CHECK_DRIVER(add(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), sizeof(kCallee), "callee", 0, nullptr, nullptr));
  CHECK_DRIVER(DRIVER_ENTRY(cuLinkComplete)(link, &image, &image_bytes));
  CUmodule linked;
  CUfunction call_twice;
  CHECK_DRIVER(load(&linked, image));
  CHECK_DRIVER(DRIVER_ENTRY(cuLinkDestroy)(link));
  CHECK_DRIVER(get_function(&call_twice, linked, "CallTwice"));
  CHECK_DRIVER(launch(call_twice, 1, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));
  results.Add("linked", out.Download());

  char log[2000] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule broken;
  results.AddValue<int>("syntax error", DRIVER_ENTRY(cuModuleLoadDataEx)(&broken, kBroken, 2, options, values));
  results.AddValue<uint32_t>("its log", strlen(log) > 0);

  // The newer form of the same: context-independent libraries.
  CUlibrary library;
  CUkernel kernel;
  CHECK_DRIVER(DRIVER_ENTRY(cuLibraryLoadData)(&library, kScale, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_DRIVER(DRIVER_ENTRY(cuLibraryGetKernel)(&kernel, library, "Scale"));
  factor = 1;
  CHECK_DRIVER(launch(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));
  results.AddValue<int>("library", out.Download()[kThreads - 1] == kThreads - 1 + 11);
  CHECK_DRIVER(DRIVER_ENTRY(cuLibraryUnload)(library));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
