// Page-locked memory of every origin (cudaMallocHost, cudaHostAlloc with flags)
// as source and target of asynchronous copies, many in flight; what is mapped says so.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr size_t kCount = 100003;
constexpr int kCopies = 24;  // in flight at once

std::vector<uint32_t> Source() { return check::RandomIntegers<uint32_t>(kCount, 21); }

void Reference(Results& results) {
  results.Add("through pinned", Source());
  std::vector<uint32_t> pieces = Source();
  for (uint32_t& value : pieces) value = value * 3 + 1;
  results.Add("pieces", pieces);
  results.AddValue<uint32_t>("flags", cudaHostAllocMapped);
}

__global__ void Affine(uint32_t* values, size_t count) {
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < count) values[i] = values[i] * 3 + 1;
}

void Device(Results& results) {
  std::vector<uint32_t> source = Source();
  size_t bytes = kCount * sizeof(uint32_t);
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check::DeviceBuffer<uint32_t> device(kCount);

  uint32_t *plain, *flagged;
  CHECK_CUDA(cudaMallocHost(&plain, bytes));
  CHECK_CUDA(cudaHostAlloc(&flagged, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
  memcpy(plain, source.data(), bytes);
  memset(flagged, 0, bytes);
  CHECK_CUDA(cudaMemcpyAsync(device.get(), plain, bytes, cudaMemcpyHostToDevice, stream));
  CHECK_CUDA(cudaMemcpyAsync(flagged, device.get(), bytes, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("through pinned", flagged, kCount);

  // Pieces of odd length, all issued before the first wait: up, a kernel, down.
  memset(flagged, 0, bytes);
  size_t piece = kCount / kCopies;
  for (int k = 0; k < kCopies; ++k) {
    size_t begin = k * piece, count = k + 1 == kCopies ? kCount - begin : piece;
    uint32_t* target = device.get() + begin;
    CHECK_CUDA(cudaMemcpyAsync(target, plain + begin, count * 4, cudaMemcpyHostToDevice, stream));
    Affine<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(target, count);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyAsync(flagged + begin, target, count * 4, cudaMemcpyDeviceToHost, stream));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("pieces", flagged, kCount);

  unsigned flags = 0;
  CHECK_CUDA(cudaHostGetFlags(&flags, flagged));
  results.AddValue<uint32_t>("flags", flags & cudaHostAllocMapped);
  CHECK_CUDA(cudaFreeHost(plain));
  CHECK_CUDA(cudaFreeHost(flagged));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
