// A graph captured from two streams (fork and join by events, copies, memset, kernels) and replayed many times with
// changed inputs; then instantiated a second time, and captured again in pieces with cudaStreamBeginCapture's modes.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 500, kReplays = 12;

uint32_t Input(uint32_t replay, uint32_t i) { return (replay * 977 + i) * 2654435761u; }

void Reference(Results& results) {
  for (uint32_t replay = 0; replay < kReplays; ++replay) {
    std::vector<uint32_t> out(kCount);
    for (uint32_t i = 0; i < kCount; ++i)
      out[i] = (Input(replay, i) * 3 + 1) + (Input(replay, i) * 5 + 2) + 0x01010101u;
    results.Add("replay", out);
  }
  results.AddValue<uint32_t>("replays counted on the device", kReplays + 5);
  results.AddValue<uint32_t>("capturing", 1);
  results.AddValue<uint32_t>("nodes", 7);
}

__global__ void Affine(const uint32_t* in, uint32_t* out, uint32_t factor, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = in[i] * factor + constant;
}

__global__ void Sum(const uint32_t* a, const uint32_t* b, uint32_t* inout, uint32_t* counter) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) inout[i] += a[i] + b[i];
  if (i == 0) ++*counter;
}

void Device(Results& results) {
  cudaStream_t main_stream, side_stream;
  CHECK_CUDA(cudaStreamCreate(&main_stream));
  CHECK_CUDA(cudaStreamCreate(&side_stream));
  cudaEvent_t forked, joined;
  CHECK_CUDA(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK_CUDA(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  uint32_t *host_in, *host_out;
  CHECK_CUDA(cudaMallocHost(&host_in, kCount * 4));
  CHECK_CUDA(cudaMallocHost(&host_out, kCount * 4));
  check::DeviceBuffer<uint32_t> in(kCount), left(kCount), right(kCount), out(kCount), counter(1);
  counter.Zero();

  CHECK_CUDA(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
  CHECK_CUDA(cudaMemcpyAsync(in.get(), host_in, kCount * 4, cudaMemcpyHostToDevice, main_stream));
  CHECK_CUDA(cudaEventRecord(forked, main_stream));
  CHECK_CUDA(cudaStreamWaitEvent(side_stream, forked, 0));
  Affine<<<4, 128, 0, main_stream>>>(in.get(), left.get(), 3, 1);
  Affine<<<4, 128, 0, side_stream>>>(in.get(), right.get(), 5, 2);
  CHECK_CUDA(cudaMemsetAsync(out.get(), 1, kCount * 4, side_stream));
  CHECK_CUDA(cudaMemcpyAsync(out.get() + 1, out.get(), 4, cudaMemcpyDeviceToDevice, side_stream));
  CHECK_CUDA(cudaEventRecord(joined, side_stream));
  cudaStreamCaptureStatus status;
  CHECK_CUDA(cudaStreamIsCapturing(side_stream, &status));
  CHECK_CUDA(cudaStreamWaitEvent(main_stream, joined, 0));
  Sum<<<4, 128, 0, main_stream>>>(left.get(), right.get(), out.get(), counter.get());
  CHECK_CUDA(cudaMemcpyAsync(host_out, out.get(), kCount * 4, cudaMemcpyDeviceToHost, main_stream));
  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamEndCapture(main_stream, &graph));
  size_t num_nodes = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CHECK_CUDA(cudaGraphUpload(executable, main_stream));
  for (uint32_t replay = 0; replay < kReplays; ++replay) {
    for (uint32_t i = 0; i < kCount; ++i) host_in[i] = Input(replay, i);
    memset(host_out, 0, kCount * 4);
    CHECK_CUDA(cudaGraphLaunch(executable, main_stream));
    CHECK_CUDA(cudaStreamSynchronize(main_stream));
    results.Add("replay", host_out, kCount);
  }
  // The executable lives on without the graph; several launches of it run one after another.
  CHECK_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < 5; ++i) CHECK_CUDA(cudaGraphLaunch(executable, main_stream));
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaStreamSynchronize(main_stream));
  results.AddValue("replays counted on the device", counter.Download()[0]);
  results.AddValue<uint32_t>("capturing", status == cudaStreamCaptureStatusActive);
  results.AddValue<uint32_t>("nodes", static_cast<uint32_t>(num_nodes));
  CHECK_CUDA(cudaFreeHost(host_in));
  CHECK_CUDA(cudaFreeHost(host_out));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
