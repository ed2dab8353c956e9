// What stands behind a tally_pipeline: the chain as it is built, then its kernels, and a launch of one of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <expected>
#include <string>
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

// Addresses on the GPU.
struct LayerOperands {
  const void* weights = nullptr;
  size_t weights_pitch = 0;  // elements
  const void* bias = nullptr;
  const void* scale = nullptr;
  const void* shift = nullptr;
};

class Pipeline {
 public:
  explicit Pipeline(Element element) { chain_.element = element; }
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Outcome AddLinear(const LayerOperands& operands, int in, int out);
  Outcome AddActivation(Activation activation);
  Outcome AddNorm(Norm norm, const void* scale, const void* shift, float epsilon);
  Outcome AddConcat(TakesInput order);
  Outcome AddResidual();

  Outcome Instantiate(int64_t max_rows);
  Outcome Launch(CUstream stream, const void* x, size_t x_pitch, void* y, size_t y_pitch, int64_t rows) const;
  std::expected<Plan, Failure> Query(int64_t rows) const;
  const Chain& chain() const { return chain_; }

 private:
  struct Kernel {
    Variant variant;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    std::vector<CUtensorMap> weights;  // of each layer; boxes of one block's part of a panel
  };

  // The last layer, if one more property may be said of it.
  std::expected<Layer*, Failure> Last(const char* what);
  // What its launches need besides its module.
  Outcome Prepare(const Driver& driver, Kernel& kernel) const;
  Outcome EncodeWeights(const Driver& driver, Kernel& kernel) const;

  Chain chain_;
  std::vector<LayerOperands> operands_;
  TakesInput next_takes_input_ = TakesInput::kNo;

  CUcontext context_ = nullptr;  // of the current one when it was instantiated; null: not yet
  Machine machine_;
  int64_t max_rows_ = 0;
  std::vector<Kernel> kernels_;
  std::vector<Variant> variants_;  // of kernels_
};

}  // namespace tally::pipelines
