// A CUDA driver that executes nothing but gates, for trying gate_matrix (and its queue) where there is no GPU: a shared
// library for --driver. Whatever the kernel, a block counts itself and updates its threads' elements; blocks of a
// gated kernel first do what proto/device/gate_abi.h says. Some blocks run whenever the driver is called, so that stops
// fall inside kernels.
//
//   FAKE_GATE=ignores_stop   a driver that runs the kernels ungated: the canary must see it
//   FAKE_GATE=loses_block    a block in a thousand does not run after a second resume: the comparison must see it
#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/device/gate_abi.h"

namespace {

using tally::device::GateParameters;
using tally::device::GateRecord;

struct Pending {
  bool is_gated = false;
  bool is_empty = false;
  uint32_t blocks = 0, threads = 0, cluster_blocks = 1, next = 0;
  float* out = nullptr;
  uint32_t* counts = nullptr;
  uint32_t n = 0;
  GateParameters gate = {};
};

struct Function {
  std::string name;
  bool is_gated = false;
};
struct Graph {
  std::vector<Pending> launches;
};

const std::string mode = std::getenv("FAKE_GATE") != nullptr ? std::getenv("FAKE_GATE") : "";
std::deque<Pending> pending;
std::unique_ptr<Graph> capturing;
std::map<std::pair<bool, std::string>, std::unique_ptr<Function>> functions;
std::vector<float> own_out(1 << 22);
std::vector<uint32_t> own_counts(1 << 16);
unsigned ticks = 0;

// What the gate does for block (or cluster) `index`.
bool MayRun(const GateParameters& gate, uint32_t index) {
  if (gate.record == 0 || mode == "ignores_stop") return true;
  auto* const record = reinterpret_cast<GateRecord*>(gate.record & ~(tally::device::kGateRecordAlignment - 1));
  const uint32_t number = gate.base + index;
  if (number < record->start) return false;
  if (record->stopped == record->epoch && number >= record->watermark) record->watermark = number + gate.chunk;
  if (mode == "loses_block" && record->epoch > 1 && index % 1000 == 7) return false;
  return number < record->watermark;
}

void RunBlock(const Pending& launch, uint32_t block) {
  if (launch.is_empty) return;
  ++launch.counts[block];
  for (uint64_t i = uint64_t{block} * launch.threads; i < uint64_t{block + 1} * launch.threads && i < launch.n; ++i)
    launch.out[i] = launch.out[i] * 1.25f + static_cast<float>(block);
}

void RunSome(uint32_t blocks) {
  while (blocks != 0 && !pending.empty()) {
    Pending& launch = pending.front();
    for (; blocks != 0 && launch.next < launch.blocks; ++launch.next, --blocks)
      if (!launch.is_gated || MayRun(launch.gate, launch.next / launch.cluster_blocks)) RunBlock(launch, launch.next);
    if (launch.next == launch.blocks) pending.pop_front();
  }
}
void RunAll() { RunSome(~0u); }

uint32_t LargeParameterBytes(const std::string& name) {
  return name == "LargeParameters" ? 4072 : name == "HugeParameters" ? 16000 : name == "OddParameters" ? 13 : 0;
}
bool HasParameters(const std::string& name) { return name != "Empty" && name != "NoParameters"; }
// Of each parameter: {offset, bytes}.
std::vector<std::pair<size_t, size_t>> ParametersOf(const Function& function) {
  std::vector<std::pair<size_t, size_t>> parameters;
  size_t end = 0;
  const auto add = [&](size_t offset, size_t bytes) {
    parameters.emplace_back(offset, bytes);
    end = offset + bytes;
  };
  if (HasParameters(function.name)) {
    for (const size_t bytes : {8, 8, 4, 4}) add(end, bytes);
    if (const uint32_t bytes = LargeParameterBytes(function.name); bytes != 0) add(end, bytes);
  }
  if (function.is_gated) add(tally::device::GateOffset(static_cast<uint32_t>(end)), sizeof(GateParameters));
  return parameters;
}

template <typename T>
T Read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

int handle;  // its address stands for streams, contexts and events

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

EXPORT cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
EXPORT cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
EXPORT cuDeviceGetName(char* name, int, CUdevice) { return std::strcpy(name, "a fake device"), CUDA_SUCCESS; }
EXPORT cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
  return CUDA_SUCCESS;
}
EXPORT cuGetErrorName(CUresult, const char** name) { return *name = "an error", CUDA_SUCCESS; }
EXPORT cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(&handle);
  return CUDA_SUCCESS;
}
EXPORT cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, CUDA_SUCCESS; }
EXPORT cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  *stream = reinterpret_cast<CUstream>(&handle);
  return CUDA_SUCCESS;
}
EXPORT cuStreamSynchronize(CUstream) {  // of the controlling stream too
  RunAll();
  return CUDA_SUCCESS;
}
EXPORT cuStreamQuery(CUstream) {
  RunSome(700);
  return pending.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
EXPORT cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
EXPORT cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
EXPORT cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
EXPORT cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  RunAll();
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return CUDA_SUCCESS;
}
EXPORT cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  RunSome((++ticks * 2654435761u >> 16) % 9000);  // the stream's work goes on until the copy: a stop comes in between
  return cuMemcpyHtoD_v2(to, from, bytes);
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  return cuMemcpyDtoH_v2(to, from, bytes);
}
EXPORT cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return cuMemcpyDtoH_v2(reinterpret_cast<void*>(to), from, bytes);
}
EXPORT cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream) {
  RunAll();
  std::fill_n(reinterpret_cast<unsigned*>(to), count, value);
  return CUDA_SUCCESS;
}
// The first module is the original, the second the gated one.
EXPORT cuModuleLoadData(CUmodule* module, const void*) {
  static uintptr_t num_modules = 0;
  *module = reinterpret_cast<CUmodule>(++num_modules);
  return CUDA_SUCCESS;
}
EXPORT cuLinkCreate_v2(unsigned, CUjit_option*, void**, CUlinkState*) { return CUDA_SUCCESS; }
EXPORT cuLinkAddData_v2(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned, CUjit_option*, void**) {
  return CUDA_SUCCESS;
}
EXPORT cuLinkComplete(CUlinkState, void**, size_t*) { return CUDA_SUCCESS; }
EXPORT cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const bool is_gated = reinterpret_cast<uintptr_t>(module) == 2;
  std::unique_ptr<Function>& found = functions[{is_gated, name}];
  if (found == nullptr) found = std::make_unique<Function>(Function{name, is_gated});
  *function = reinterpret_cast<CUfunction>(found.get());
  return CUDA_SUCCESS;
}
EXPORT cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule, const char* name) {
  const bool is_out = std::string(name) == "own_out";
  *address = reinterpret_cast<CUdeviceptr>(is_out ? static_cast<void*>(own_out.data()) : own_counts.data());
  *bytes = is_out ? own_out.size() * sizeof(float) : own_counts.size() * sizeof(uint32_t);
  return CUDA_SUCCESS;
}
EXPORT cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORT cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  const auto parameters = ParametersOf(*reinterpret_cast<Function*>(function));
  if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  std::tie(*offset, *bytes) = parameters[index];
  return CUDA_SUCCESS;
}
EXPORT cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle_of_function, void** pointers, void** extra) {
  const Function& function = *reinterpret_cast<Function*>(handle_of_function);
  const auto parameters = ParametersOf(function);
  const auto value = [&](size_t i) -> const void* {
    return extra != nullptr ? static_cast<const char*>(extra[1]) + parameters[i].first : pointers[i];
  };
  Pending launch;
  launch.is_gated = function.is_gated;
  launch.is_empty = function.name == "Empty" || function.name == "Spin" || function.name == "MultiplyAdd" ||
                    function.name == "ElementWise";
  launch.blocks = config->gridDimX * config->gridDimY * config->gridDimZ;
  launch.threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  launch.out = own_out.data();
  launch.counts = own_counts.data();
  launch.n = 1 << 22;
  if (HasParameters(function.name)) {
    launch.out = Read<float*>(value(0));
    launch.counts = Read<uint32_t*>(value(1));
    launch.n = Read<uint32_t>(value(2));
  }
  if (function.is_gated) {
    launch.gate = Read<GateParameters>(value(parameters.size() - 1));
    const uint64_t flags = launch.gate.record & (tally::device::kGateRecordAlignment - 1);
    if (launch.gate.record != 0 && (flags & tally::device::kGateOn) == 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & tally::device::kGateClusters) != 0) launch.cluster_blocks = 4;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      const auto& cluster = attribute.value.clusterDim;
      launch.cluster_blocks = cluster.x * cluster.y * cluster.z;
    }
  }
  if (capturing != nullptr) {
    capturing->launches.push_back(launch);
  } else {
    pending.push_back(launch);
  }
  return CUDA_SUCCESS;
}
EXPORT cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
  capturing = std::make_unique<Graph>();
  return CUDA_SUCCESS;
}
EXPORT cuStreamEndCapture(CUstream, CUgraph* graph) {
  *graph = reinterpret_cast<CUgraph>(capturing.release());
  return CUDA_SUCCESS;
}
EXPORT cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return CUDA_SUCCESS;
}
EXPORT cuGraphLaunch(CUgraphExec exec, CUstream) {
  const Graph& graph = *reinterpret_cast<Graph*>(exec);
  pending.insert(pending.end(), graph.launches.begin(), graph.launches.end());
  return CUDA_SUCCESS;
}
EXPORT cuGraphExecDestroy(CUgraphExec exec) { return delete reinterpret_cast<Graph*>(exec), CUDA_SUCCESS; }
EXPORT cuGraphDestroy(CUgraph graph) { return delete reinterpret_cast<Graph*>(graph), CUDA_SUCCESS; }
EXPORT cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(&handle);
  return CUDA_SUCCESS;
}
EXPORT cuEventRecord(CUevent, CUstream) {
  RunAll();
  return CUDA_SUCCESS;
}
EXPORT cuEventElapsedTime(float* ms, CUevent, CUevent) { return *ms = 1, CUDA_SUCCESS; }
EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  return *blocks = 8, CUDA_SUCCESS;
}
