// cudaLaunchKernelEx with attributes: a programmatic dependent launch (the second kernel waits by griddepcontrol where
// it exists), priorities of launches and streams, and a launch without attributes through the same entry.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 1024, kSteps = 5;

void Reference(Results& results) {
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    values[i] = i;
    for (uint32_t step = 0; step < kSteps; ++step) values[i] = values[i] * 3 + step;
  }
  results.Add("dependent launches", values);
  for (uint32_t& value : values) value = value * 3 + 100;
  results.Add("with priority", values);
  results.Add("relations", std::vector<uint32_t>(3, 1));
}

__global__ void Step(uint32_t* values, uint32_t constant) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // everything before this may overlap with the previous kernel
#endif
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = values[i] * 3 + constant;
}

void Device(Results& results) {
  std::vector<uint32_t> start(kCount);
  for (uint32_t i = 0; i < kCount; ++i) start[i] = i;
  check::DeviceBuffer<uint32_t> values(start);
  int least = 0, greatest = 0, priority = 0;
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  CHECK_CUDA(cudaDeviceSynchronize());

  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(kCount / 8);
  config.stream = stream;
  config.attrs = &attribute;
  for (uint32_t step = 0; step < kSteps; ++step) {
    config.numAttrs = step == 0 ? 0 : 1;
    CHECK_CUDA(cudaLaunchKernelEx(&config, Step, values.get(), step));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("dependent launches", values.Download());

  attribute.id = cudaLaunchAttributePriority;
  attribute.val.priority = greatest;
  config.numAttrs = 1;
  CHECK_CUDA(cudaLaunchKernelEx(&config, Step, values.get(), 100u));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("with priority", values.Download());
  std::vector<uint32_t> relations;
  relations.push_back(greatest <= least);  // smaller numbers are more urgent
  CHECK_CUDA(cudaStreamGetPriority(stream, &priority));
  relations.push_back(priority == greatest);
  unsigned flags = 0;
  CHECK_CUDA(cudaStreamGetFlags(stream, &flags));
  relations.push_back(flags == cudaStreamNonBlocking);
  results.Add("relations", relations);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
