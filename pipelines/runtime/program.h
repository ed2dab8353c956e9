// The compiled kernels of one chain, and a launch of the one that suits a number of rows.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pipelines/plan/chain.h"
#include "pipelines/plan/plan.h"
#include "pipelines/runtime/driver.h"

namespace tally::pipelines {

struct Failure {
  CUresult result;
  std::string sentence;
};
using Outcome = std::expected<void, Failure>;
inline std::unexpected<Failure> Fail(CUresult result, std::string sentence) {
  return std::unexpected(Failure{result, std::move(sentence)});
}

// Addresses on the GPU.
struct LayerOperands {
  const void* weights = nullptr;
  size_t weights_pitch = 0;  // elements
  const void* bias = nullptr;
  const void* scale = nullptr;
  const void* shift = nullptr;
};

// What a launch reads and writes, on the GPU; pitches in elements.
struct Matrices {
  const void* x = nullptr;
  size_t x_pitch = 0;
  void* y = nullptr;
  size_t y_pitch = 0;
  std::array<void*, kMostLayers> saved{}, masks{};  // of layers that have them
};

class Program {
 public:
  // `operands` of each layer.
  Program(Chain chain, std::vector<LayerOperands> operands)
      : chain_(std::move(chain)), operands_(std::move(operands)) {}
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Plans and compiles all at once, in the current context; which may fail for good, and then none is to be launched.
  static Outcome Instantiate(std::span<const std::unique_ptr<Program>> programs, const Machine& machine,
                             int64_t max_rows);

  // What follows is for instantiated ones, and 1 to max_rows rows. Any thread.
  Plan Choose(int64_t rows) const { return pipelines::Choose(chain_, machine_, variants_, rows); }
  Outcome Launch(CUstream stream, const Matrices& matrices, int64_t rows) const;
  const Chain& chain() const { return chain_; }

 private:
  struct Kernel {
    Variant variant;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    std::vector<CUtensorMap> weights;  // of each layer, in boxes; by wgmma only
  };

  // What its launches need besides its module.
  Outcome Prepare(const Driver& driver, Kernel& kernel) const;
  Outcome EncodeWeights(const Driver& driver, Kernel& kernel) const;

  Chain chain_;
  std::vector<LayerOperands> operands_;
  CUcontext context_ = nullptr;  // in which modules were loaded
  Machine machine_;
  std::vector<Kernel> kernels_;
  std::vector<Variant> variants_;  // of kernels_
};

}  // namespace tally::pipelines
