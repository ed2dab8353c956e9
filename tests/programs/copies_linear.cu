// One-dimensional copies in every direction and form: odd sizes and offsets, pageable and pinned, synchronous and
// asynchronous, device to device (overlap-free), cudaMemcpyDefault, and one of 64 MiB.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr size_t kBytes = 300007;  // odd, larger than one staging chunk is likely to be aligned for
const size_t kSizes[] = {0, 1, 2, 3, 7, 64, 4095, 4096, 4097, 65537, 262144};

std::vector<uint8_t> Pattern(size_t count, uint64_t seed) { return check::RandomIntegers<uint8_t>(count, seed); }

void Reference(Results& results) {
  std::vector<uint8_t> source = Pattern(kBytes, 1);
  for (size_t size : kSizes) {
    std::vector<uint8_t> target(kBytes, 0);
    memcpy(target.data() + 5, source.data() + 3, size);
    results.Add("pageable", target);
    results.Add("pinned", target);
  }
  results.Add("chain", source);
  results.Add("default kind", source);
  results.Add("64 MiB", Pattern(64 << 20, 2));
}

// Host (offset 3) to device, device to device, device (offset 5) to host, on `stream` if asynchronous.
void CopyThrough(uint8_t* host_target, const uint8_t* host_source, size_t size, bool asynchronous,
                 cudaStream_t stream) {
  check::DeviceBuffer<uint8_t> first(kBytes), second(kBytes);
  CHECK_CUDA(cudaMemset(second.get(), 0, kBytes));
  CHECK_CUDA(cudaDeviceSynchronize());
  if (asynchronous) {
    CHECK_CUDA(cudaMemcpyAsync(first.get() + 1, host_source + 3, size, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaMemcpyAsync(second.get() + 5, first.get() + 1, size, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaMemcpyAsync(host_target, second.get(), kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  } else {
    CHECK_CUDA(cudaMemcpy(first.get() + 1, host_source + 3, size, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(second.get() + 5, first.get() + 1, size, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemcpy(host_target, second.get(), kBytes, cudaMemcpyDeviceToHost));
  }
}

void Device(Results& results) {
  std::vector<uint8_t> source = Pattern(kBytes, 1);
  uint8_t *pinned_source, *pinned_target;
  CHECK_CUDA(cudaMallocHost(&pinned_source, kBytes));
  CHECK_CUDA(cudaMallocHost(&pinned_target, kBytes));
  memcpy(pinned_source, source.data(), kBytes);
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  bool asynchronous = false;
  for (size_t size : kSizes) {
    std::vector<uint8_t> target(kBytes, 0xee);
    CopyThrough(target.data(), source.data(), size, asynchronous, stream);
    results.Add("pageable", target);
    memset(pinned_target, 0xdd, kBytes);
    CopyThrough(pinned_target, pinned_source, size, !asynchronous, stream);
    results.Add("pinned", pinned_target, kBytes);
    asynchronous = !asynchronous;
  }

  // Pageable source: the program may reuse it as soon as the call returns.
  check::DeviceBuffer<uint8_t> device(kBytes);
  std::vector<uint8_t> reused = source;
  CHECK_CUDA(cudaMemcpyAsync(device.get(), reused.data(), kBytes, cudaMemcpyHostToDevice, stream));
  memset(reused.data(), 0, kBytes);
  CHECK_CUDA(cudaMemcpyAsync(pinned_target, device.get(), kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("chain", pinned_target, kBytes);

  device.Zero();
  CHECK_CUDA(cudaMemcpy(device.get(), source.data(), kBytes, cudaMemcpyDefault));
  std::vector<uint8_t> target(kBytes);
  CHECK_CUDA(cudaMemcpy(target.data(), device.get(), kBytes, cudaMemcpyDefault));
  results.Add("default kind", target);

  std::vector<uint8_t> large = Pattern(64 << 20, 2);
  check::DeviceBuffer<uint8_t> large_device(large);
  results.Add("64 MiB", large_device.Download());
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFreeHost(pinned_source));
  CHECK_CUDA(cudaFreeHost(pinned_target));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
