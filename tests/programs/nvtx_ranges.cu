// NVTX annotations as frameworks make them, with no tool attached: pushed, popped, started and ended ranges, marks,
// domains, names of threads and streams, between CUDA calls. And the profiler's start and stop.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <unistd.h>

#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.AddValue<int>("sum", 4 * 25);
  results.Add("depths without a tool", std::vector<int>{NVTX_NO_PUSH_POP_TRACKING, NVTX_NO_PUSH_POP_TRACKING});
}

__global__ void Add(int* word, int value) { atomicAdd(word, value); }

void Work(int* word) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("tally");
  for (int i = 0; i < 25; ++i) {
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.colorType = NVTX_COLOR_ARGB;
    attributes.color = 0xff00ff00;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = "launch";
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxRangeId_t range = nvtxRangeStartA("crosses threads");
    Add<<<1, 1>>>(word, 1);
    CHECK_LAUNCH();
    nvtxMarkA("launched");
    nvtxRangeEnd(range);
    nvtxDomainRangePop(domain);
  }
  nvtxDomainDestroy(domain);
}

void Device(Results& results) {
  check::DeviceBuffer<int> word(1);
  word.Zero();
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  nvtxNameOsThreadA(static_cast<uint32_t>(gettid()), "main");
  nvtxNameCudaStreamA(stream, "stream");
  nvtxNameCudaDeviceA(0, "device");
  CHECK_CUDA(cudaProfilerStart());
  std::vector<int> depths{nvtxRangePushA("outer")};
  std::thread threads[3];
  for (std::thread& thread : threads) thread = std::thread([&] { Work(word.get()); });
  Work(word.get());
  for (std::thread& thread : threads) thread.join();
  depths.push_back(nvtxRangePop());
  CHECK_CUDA(cudaProfilerStop());
  results.AddValue<int>("sum", word.Download()[0]);
  results.Add("depths without a tool", depths);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
