// Streams that wait for and write words of memory themselves (cuStreamWaitValue32, cuStreamWriteValue32/64), on device
// and on pinned host memory: two streams hand a buffer to and fro without any event, and the host opens a gate.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr int kCount = 256;
constexpr uint32_t kTurns = 10;

void Reference(Results& results) {
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    values[i] = i;
    for (uint32_t turn = 0; turn < kTurns; ++turn) values[i] = values[i] * (turn % 2 ? 5 : 3) + turn;
  }
  results.Add("to and fro", values);
  results.AddValue<int>("behind the gate", cudaErrorNotReady);
  results.AddValue<uint64_t>("written by the stream", 0x1122334455667788ull);
}

__global__ void Step(uint32_t* values, uint32_t factor, uint32_t constant) {
  values[threadIdx.x] = values[threadIdx.x] * factor + constant;
}

void Device(Results& results) {
  auto wait = DRIVER_ENTRY(cuStreamWaitValue32);
  auto write = DRIVER_ENTRY(cuStreamWriteValue32);
  std::vector<uint32_t> start(kCount);
  for (uint32_t i = 0; i < kCount; ++i) start[i] = i;
  check::DeviceBuffer<uint32_t> values(start), turn_word(1);
  turn_word.Zero();
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaDeviceSynchronize());
  CUdeviceptr word = reinterpret_cast<CUdeviceptr>(turn_word.get());
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    cudaStream_t stream = streams[turn % 2];
    CHECK_DRIVER(wait(stream, word, turn, CU_STREAM_WAIT_VALUE_EQ));
    Step<<<1, kCount, 0, stream>>>(values.get(), turn % 2 ? 5 : 3, turn);
    CHECK_LAUNCH();
    CHECK_DRIVER(write(stream, word, turn + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("to and fro", values.Download());

  uint64_t* host;
  CHECK_CUDA(cudaHostAlloc(&host, 16, cudaHostAllocMapped));
  host[0] = host[1] = 0;
  CUdeviceptr gate = reinterpret_cast<CUdeviceptr>(host);
  CHECK_DRIVER(wait(streams[0], gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
  CHECK_DRIVER(
      DRIVER_ENTRY(cuStreamWriteValue64)(streams[0], gate + 8, 0x1122334455667788ull, CU_STREAM_WRITE_VALUE_DEFAULT));
  results.AddValue<int>("behind the gate", cudaStreamQuery(streams[0]));
  __atomic_store_n(reinterpret_cast<uint32_t*>(host), 1, __ATOMIC_RELEASE);
  CHECK_CUDA(cudaStreamSynchronize(streams[0]));
  results.AddValue("written by the stream", host[1]);
  CHECK_CUDA(cudaFreeHost(host));
  for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
