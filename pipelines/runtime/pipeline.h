// What stands behind a tally_pipeline: the chain as it is built, then its kernels, and launches of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <expected>
#include <memory>
#include <vector>

#include "pipelines/plan/chain.h"
#include "pipelines/plan/plan.h"
#include "pipelines/runtime/program.h"

namespace tally::pipelines {

enum class Use { kNone, kInference, kTraining, kTrainingWithDx };

struct PlanOf {
  Plan plan;
  int shared_bytes = 0;
};
struct TrainingPlan {
  PlanOf forward, backward;
  int64_t saved_bytes, dz_bytes;
};

class Pipeline {
 public:
  explicit Pipeline(Element element) { chain_.element = element; }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Outcome AddLinear(const LayerOperands& operands, int in, int out);
  Outcome AddActivation(Activation activation);
  Outcome AddNorm(Norm norm, const void* scale, const void* shift, float epsilon);
  Outcome AddConcat(TakesInput order);
  Outcome AddResidual();

  Outcome Instantiate(Use use, int64_t max_rows);
  // As tally/pipelines.h says.
  Outcome Launch(CUstream stream, const void* x, size_t x_pitch, void* y, size_t y_pitch, int64_t rows) const;
  std::expected<PlanOf, Failure> Query(int64_t rows) const;
  Outcome LaunchForward(CUstream stream, const void* x, size_t x_pitch, void* y, size_t y_pitch, void* saved,
                        int64_t rows) const;
  Outcome LaunchBackward(CUstream stream, const void* dy, size_t dy_pitch, const void* saved, void* dz, void* dx,
                         size_t dx_pitch, int64_t rows) const;
  std::expected<TrainingPlan, Failure> QueryTraining(int64_t rows) const;

 private:
  // The last layer, if one more property may be said of it.
  std::expected<Layer*, Failure> Last(const char* what);
  static std::expected<Machine, Failure> FindMachine();
  Outcome CheckRows(bool trains, int64_t rows) const;
  PlanOf PlanFor(size_t program, int64_t rows) const;

  Chain chain_;
  std::vector<LayerOperands> operands_;
  TakesInput next_takes_input_ = TakesInput::kNo;

  Use use_ = Use::kNone;  // what it is instantiated for
  int64_t max_rows_ = 0;
  std::vector<std::unique_ptr<Program>> programs_;  // of a launch; of a training: forward, backward
};

}  // namespace tally::pipelines
