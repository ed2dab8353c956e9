// __managed__ variables in every way that a program uses them: host and kernels in turns, arrays of many pages of which
// each side changes its own parts, addresses of them passed to kernels, symbol copies, host functions, graphs, waiting
// by query, and hints about where they should be.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 30000, kRounds = 5;

__managed__ uint32_t numbers[kCount];
__managed__ uint32_t total = 5;
__managed__ struct {
  uint8_t first;
  uint64_t second;
  uint16_t third;
} mixed = {1, 2, 3};
__managed__ uint32_t* target = nullptr;
__device__ uint32_t plain = 7;

uint32_t Step(uint32_t value, uint32_t i, uint32_t round) { return value * 1664525u + i + round; }

void Reference(Results& results) {
  std::vector<uint32_t> values(kCount);
  uint32_t sum = 5;
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) {
      if (i % 3 != 0) values[i] = Step(values[i], i, round);
    }
    for (uint32_t i = 0; i < kCount; i += 3) values[i] += round;
    for (uint32_t i = 0; i < kCount; ++i) sum += values[i] & 15;
  }
  results.Add("numbers", values);
  results.AddValue("total", sum);
  results.Add("mixed", std::vector<uint64_t>{11, 1002, 13});
  results.AddValue("through a pointer in a variable", 107u);
  results.Add("symbol copies", std::vector<uint32_t>{40, 41, 42});
  results.Add("host function between kernels", std::vector<uint32_t>{3, 103, 104});
  results.Add("graph", std::vector<uint32_t>{2, 22, 42});
  results.AddValue("by query", 9u);
  results.Add("is managed", std::vector<int>{cudaMemoryTypeManaged, 1, 1});
  results.Add("hints", std::vector<int>{0, 1, 0, -2});
}

__global__ void StepThird(uint32_t round) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount && i % 3 != 0) numbers[i] = numbers[i] * 1664525u + i + round;
}
__global__ void Sum() {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) atomicAdd(&total, numbers[i] & 15);
}
__global__ void ChangeMixed() {
  mixed.first += 10;
  mixed.second += 1000;
  mixed.third += 10;
}
__global__ void AddThroughTarget(uint32_t value) { *target += value; }
__global__ void AddTo(uint32_t* word, uint32_t value) { *word += value; }

void Turns(Results& results) {
  for (uint32_t i = 0; i < kCount; ++i) numbers[i] = i;
  for (uint32_t round = 0; round < kRounds; ++round) {
    StepThird<<<(kCount + 127) / 128, 128>>>(round);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    for (uint32_t i = 0; i < kCount; i += 3) numbers[i] += round;
    Sum<<<(kCount + 127) / 128, 128>>>();
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  results.Add("numbers", numbers, kCount);
  results.AddValue("total", total);
  ChangeMixed<<<1, 1>>>();
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
  results.Add("mixed", std::vector<uint64_t>{mixed.first, mixed.second, mixed.third});
}

void Pointers(Results& results) {
  void* address = nullptr;
  CHECK_CUDA(cudaGetSymbolAddress(&address, plain));
  target = static_cast<uint32_t*>(address);
  AddThroughTarget<<<1, 1>>>(100);
  CHECK_LAUNCH();
  uint32_t value = 0;
  CHECK_CUDA(cudaMemcpyFromSymbol(&value, plain, sizeof(value)));
  results.AddValue("through a pointer in a variable", value);
}

void Copies(Results& results) {
  uint32_t value = 40;
  CHECK_CUDA(cudaMemcpyToSymbol(total, &value, sizeof(value)));
  std::vector<uint32_t> seen = {total};  // without a synchronisation between: the copy has waited
  total = 41;
  CHECK_CUDA(cudaMemcpyFromSymbol(&value, total, sizeof(value)));
  seen.push_back(value);
  check::DeviceBuffer<uint32_t> device(std::vector<uint32_t>{42});
  CHECK_CUDA(cudaMemcpy(&total, device.get(), sizeof(total), cudaMemcpyDefault));
  seen.push_back(total);
  results.Add("symbol copies", seen);
}

void HostFunction(Results& results) {
  static std::vector<uint32_t> seen;
  total = 1;
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  AddTo<<<1, 1, 0, stream>>>(&total, 2);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaLaunchHostFunc(
      stream,
      [](void*) {
        seen.push_back(total);
        total += 100;
        seen.push_back(total);
      },
      nullptr));
  AddTo<<<1, 1, 0, stream>>>(&total, 1);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  seen.push_back(total);
  CHECK_CUDA(cudaStreamDestroy(stream));
  results.Add("host function between kernels", seen);
}

void Graph(Results& results) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  AddTo<<<1, 1, 0, stream>>>(&total, 1);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<uint32_t> seen;
  for (uint32_t start : {1u, 21u, 41u}) {
    total = start;
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    seen.push_back(total);
  }
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  results.Add("graph", seen);
  total = 4;
  AddTo<<<1, 1, 0, stream>>>(&total, 5);
  CHECK_LAUNCH();
  cudaError_t answer;
  while ((answer = cudaStreamQuery(stream)) == cudaErrorNotReady) {
  }
  CHECK_CUDA(answer);
  cudaGetLastError();
  results.AddValue("by query", total);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

void Attributes(Results& results) {
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, numbers + 10));
  results.Add("is managed", std::vector<int>{attributes.type, attributes.hostPointer == numbers + 10,
                                             attributes.devicePointer == numbers + 10});
  // What the hints change is the device's affair; that they are remembered is not.
  const size_t half = sizeof(numbers) / 2;
  std::vector<int> hints;
  int value = 0;
  CHECK_CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, numbers, half));
  hints.push_back(value);
  CHECK_CUDA(cudaMemAdvise(numbers, sizeof(numbers), cudaMemAdviseSetReadMostly,
                           cudaMemLocation{cudaMemLocationTypeDevice, 0}));
  CHECK_CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, numbers, half));
  hints.push_back(value);
  CHECK_CUDA(cudaMemAdvise(numbers, sizeof(numbers), cudaMemAdviseUnsetReadMostly,
                           cudaMemLocation{cudaMemLocationTypeDevice, 0}));
  CHECK_CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, numbers, half));
  hints.push_back(value);
  CHECK_CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributePreferredLocation, numbers, half));
  hints.push_back(value);
  results.Add("hints", hints);
}

void Device(Results& results) {
  Turns(results);
  Pointers(results);
  Copies(results);
  HostFunction(results);
  Graph(results);
  Attributes(results);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
