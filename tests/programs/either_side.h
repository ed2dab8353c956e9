// For programs whose point is the order of many small operations: a list of operations that is carried out on the host,
// each at its call, or on the device, asynchronously, from the same lines. So the host's result is that of program
// order.
//
//   struct Double { ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in) { out[i] = in[i] * 2; } };
//   side.Run<Double>(stream, count, out, in);
//
// Kernels are ordinary ones with pointers and numbers as parameters. What two threads of one launch write is theirs
// alone, or added by AddTo(), so that a loop over the threads computes the same.
#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "tests/programs/check.h"

#define ONE_SIDED __host__ __device__

namespace check {

ONE_SIDED inline void AddTo(uint32_t* word, uint32_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(word, value);
#else
  *word += value;
#endif
}

template <class Kind, class... Parameters>
__global__ void EachThread(int count, Parameters... parameters) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) Kind::At(i, parameters...);
}

enum class Where { kHost, kDevice };

// Arrays are of words. Those of the device lie wherever cudaMalloc puts them; it is never asked for more than is used.
class Side {
 public:
  explicit Side(Where where) : is_device_(where == Where::kDevice) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  bool is_device() const { return is_device_; }

  // Its first bytes are those of `values`.
  uint32_t* New(const std::vector<uint32_t>& values) {
    uint32_t* const words = New(values.size());
    if (is_device_) {
      CHECK_CUDA(cudaMemcpy(words, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
      CHECK_CUDA(cudaDeviceSynchronize());  // it may return before they have arrived
    } else {
      std::copy(values.begin(), values.end(), words);
    }
    return words;
  }
  // What is in it is undefined.
  uint32_t* New(size_t count) {
    uint32_t* words = nullptr;
    if (!is_device_) return NewOnHost(count);
    CHECK_CUDA(cudaMalloc(&words, count * 4));
    return words;
  }
  uint32_t* NewInStream(cudaStream_t stream, size_t count) {
    uint32_t* words = nullptr;
    if (!is_device_) return NewOnHost(count);
    CHECK_CUDA(cudaMallocAsync(&words, count * 4, stream));
    return words;
  }
  void Free(uint32_t* words) {
    if (is_device_) CHECK_CUDA(cudaFree(words));
    on_host_.erase(words);
  }
  void FreeInStream(cudaStream_t stream, uint32_t* words) {
    if (is_device_) CHECK_CUDA(cudaFreeAsync(words, stream));
    on_host_.erase(words);
  }

  template <class Kind, class... Parameters>
  void Run(cudaStream_t stream, int count, Parameters... parameters) {
    RunInBlocks<Kind>(stream, 64, count, parameters...);
  }
  template <class Kind, class... Parameters>
  void RunInBlocks(cudaStream_t stream, int threads, int count, Parameters... parameters) {
    if (is_device_) {
      EachThread<Kind><<<(count + threads - 1) / threads, threads, 0, stream>>>(count, parameters...);
      CHECK_LAUNCH();
      return;
    }
    for (int i = 0; i < count; ++i) Kind::At(i, parameters...);
  }
  // Each byte.
  void Fill(cudaStream_t stream, uint32_t* to, uint8_t value, size_t count) {
    if (is_device_) CHECK_CUDA(cudaMemsetAsync(to, value, count * 4, stream));
    if (!is_device_) memset(to, value, count * 4);
  }
  // The two do not overlap.
  void Copy(cudaStream_t stream, uint32_t* to, const uint32_t* from, size_t count) {
    if (is_device_) CHECK_CUDA(cudaMemcpyAsync(to, from, count * 4, cudaMemcpyDefault, stream));
    if (!is_device_) memcpy(to, from, count * 4);
  }
  // Waits for the stream.
  void Show(Results& results, const char* name, cudaStream_t stream, const uint32_t* words, size_t count) {
    std::vector<uint32_t> values(count);
    Copy(stream, values.data(), words, count);
    if (is_device_) CHECK_CUDA(cudaStreamSynchronize(stream));
    results.Add(name, values);
  }

 private:
  uint32_t* NewOnHost(size_t count) {
    auto words = std::make_unique<uint32_t[]>(count);
    uint32_t* const pointer = words.get();
    on_host_[pointer] = std::move(words);
    return pointer;
  }

  const bool is_device_;
  std::map<uint32_t*, std::unique_ptr<uint32_t[]>> on_host_;
};

// A program that is one such list: `play` fills the results, on a stream that is ordered behind no other.
template <void (*play)(Side&, cudaStream_t, Results&)>
int RunOnEitherSide(int argc, char** argv) {
  return RunProgram(
      argc, argv,
      [](Results& results) {
        Side side(Where::kHost);
        play(side, nullptr, results);
      },
      [](Results& results) {
        Side side(Where::kDevice);
        cudaStream_t stream;
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        play(side, stream, results);
        CHECK_CUDA(cudaStreamDestroy(stream));
      });
}

}  // namespace check
