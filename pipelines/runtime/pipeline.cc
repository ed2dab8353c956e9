#include "pipelines/runtime/pipeline.h"

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>
#include <span>
#include <string_view>

#include "pipelines/plan/training.h"

namespace tally::pipelines {
namespace {

constexpr uintptr_t kAlignment = 16;  // of what bulk copies read and wide stores write
constexpr size_t kMostPitch = size_t{1} << 30;

std::unexpected<Failure> Invalid(std::string sentence) { return Fail(CUDA_ERROR_INVALID_VALUE, std::move(sentence)); }

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kAlignment == 0; }

}  // namespace

Outcome Pipeline::AddLinear(const LayerOperands& operands, int in, int out) {
  if (use_ != Use::kNone) return Invalid("the pipeline is instantiated; make another one");
  if (operands.weights == nullptr) return Invalid("the weights are null");
  if (!IsAligned(operands.weights)) return Invalid("the weights are not aligned to 16 bytes");
  if (in < 1 || out < 1 || in > 1 << 20 || out > 1 << 20)
    return Invalid(fmt::format("a layer of {} to {} columns", in, out));
  if (operands.weights_pitch < static_cast<size_t>(in) || operands.weights_pitch > kMostPitch ||
      operands.weights_pitch % 8 != 0) {
    return Invalid(fmt::format("a pitch of {} elements for weights of {} columns: at least as many, a multiple of 8",
                               operands.weights_pitch, in));
  }
  const int from_input = next_takes_input_ == TakesInput::kNo ? 0 : chain_.input();
  if (in <= from_input)
    return Invalid(fmt::format("the layer takes {} columns, {} of them of the input", in, from_input));
  chain_.layers.push_back({.hidden = in - from_input, .out = out, .takes_input = next_takes_input_});
  operands_.push_back(operands);
  next_takes_input_ = TakesInput::kNo;
  return {};
}

std::expected<Layer*, Failure> Pipeline::Last(const char* what) {
  if (use_ != Use::kNone) return Invalid("the pipeline is instantiated; make another one");
  if (chain_.layers.empty()) return Invalid(fmt::format("{} before the first linear layer", what));
  if (next_takes_input_ != TakesInput::kNo)
    return Invalid(fmt::format("{} between a concatenation and its linear layer", what));
  return &chain_.layers.back();
}

Outcome Pipeline::AddActivation(Activation activation) {
  const auto last = Last("an activation");
  if (!last) return std::unexpected(last.error());
  if (activation < Activation::kRelu || activation > Activation::kSilu) return Invalid("no such activation");
  Layer& layer = **last;
  if (layer.activation != Activation::kNone) return Invalid("the layer has an activation");
  if (layer.norm != Norm::kNone || layer.residual) return Invalid("an activation comes before norm and residual");
  layer.activation = activation;
  return {};
}

Outcome Pipeline::AddNorm(Norm norm, const void* scale, const void* shift, float epsilon) {
  const auto last = Last("a norm");
  if (!last) return std::unexpected(last.error());
  if (norm != Norm::kLayer && norm != Norm::kRms) return Invalid("no such norm");
  if (!(epsilon >= 0 && epsilon < 1)) return Invalid("epsilon is not between 0 and 1");
  Layer& layer = **last;
  if (layer.norm != Norm::kNone) return Invalid("the layer has a norm");
  if (layer.residual) return Invalid("a norm comes before the residual");
  layer.norm = norm;
  layer.epsilon = epsilon;
  operands_.back().scale = scale;
  operands_.back().shift = shift;
  return {};
}

Outcome Pipeline::AddConcat(TakesInput order) {
  const auto last = Last("a concatenation");
  if (!last) return std::unexpected(last.error());
  if (order != TakesInput::kFirst && order != TakesInput::kLast) return Invalid("no such order");
  next_takes_input_ = order;
  return {};
}

Outcome Pipeline::AddResidual() {
  const auto last = Last("a residual");
  if (!last) return std::unexpected(last.error());
  if ((*last)->residual) return Invalid("the layer has its residual");
  (*last)->residual = true;
  return {};
}

std::expected<Machine, Failure> Pipeline::FindMachine() {
  const auto& driver = TheDriver();
  if (!driver) return Fail(CUDA_ERROR_NOT_INITIALIZED, driver.error());
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (driver->ctx_get_current(&context) != CUDA_SUCCESS || context == nullptr ||
      driver->ctx_get_device(&device) != CUDA_SUCCESS) {
    return Fail(CUDA_ERROR_INVALID_CONTEXT, "no CUDA context is current");
  }
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver->device_get_attribute(&value, which, device);
    return value;
  };
  Machine machine;
  machine.compute_capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                               attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  machine.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  machine.shared_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  const char* const products = std::getenv("TALLY_PIPELINES_PRODUCTS");
  machine.has_wgmma = machine.compute_capability == 90 && (products == nullptr || products != std::string_view("mma"));
  return machine;
}

Outcome Pipeline::Instantiate(Use use, int64_t max_rows) {
  if (use_ != Use::kNone) return Invalid("the pipeline is instantiated");
  if (next_takes_input_ != TakesInput::kNo) return Invalid("a concatenation without a linear layer behind it");
  const auto machine = FindMachine();
  if (!machine) return std::unexpected(machine.error());
  std::vector<std::unique_ptr<Program>> programs;
  if (use == Use::kInference) {
    programs.push_back(std::make_unique<Program>(chain_, operands_));
  } else {
    const bool with_dx = use == Use::kTrainingWithDx;
    if (const auto checked = CheckTraining(chain_, with_dx); !checked)
      return Fail(CUDA_ERROR_NOT_SUPPORTED, checked.error());
    programs.push_back(std::make_unique<Program>(Forward(chain_), operands_));
    const Chain backward = Backward(chain_, with_dx);
    std::vector<LayerOperands> operands;
    for (size_t i = 0; i < backward.layers.size(); ++i) {
      const LayerOperands& of = operands_[WeightsOf(chain_, i)];
      operands.push_back({.weights = of.weights, .weights_pitch = of.weights_pitch});
    }
    programs.push_back(std::make_unique<Program>(backward, std::move(operands)));
  }
  if (const Outcome outcome = Program::Instantiate(programs, *machine, max_rows); !outcome) return outcome;
  programs_ = std::move(programs);
  use_ = use;
  max_rows_ = max_rows;
  return {};
}

Outcome Pipeline::CheckRows(bool trains, int64_t rows) const {
  if (use_ == Use::kNone) return Invalid("the pipeline is not instantiated");
  if (trains != (use_ != Use::kInference))
    return Invalid(trains ? "the pipeline is instantiated for inference" : "the pipeline is instantiated for training");
  if (rows < 0 || rows > max_rows_) return Invalid(fmt::format("{} rows; 0 to {} were instantiated", rows, max_rows_));
  return {};
}

std::expected<PlanOf, Failure> Pipeline::Query(int64_t rows) const {
  if (const Outcome checked = CheckRows(false, rows); !checked) return std::unexpected(checked.error());
  return PlanFor(0, rows);
}

std::expected<TrainingPlan, Failure> Pipeline::QueryTraining(int64_t rows) const {
  if (const Outcome checked = CheckRows(true, rows); !checked) return std::unexpected(checked.error());
  return TrainingPlan{PlanFor(0, rows), PlanFor(1, rows), SavedBytes(chain_, rows), GradientBytes(chain_, rows)};
}

PlanOf Pipeline::PlanFor(size_t program, int64_t rows) const {
  if (rows == 0) return {};
  const Plan plan = programs_[program]->Choose(rows);
  return {plan, SharedBytes(programs_[program]->chain(), plan.variant)};
}

namespace {

// One of a launch's matrices; 1 row at least.
struct Buffer {
  const char* name;
  const void* at;
  size_t pitch;  // elements
  int columns;
  int64_t rows;
  bool is_written = false;
};

// Any number of 16-byte pieces, as a matrix.
Buffer Pieces(const char* name, const void* at, int64_t bytes, bool is_written) {
  return {name, at, 8, 8, bytes / 16, is_written};
}

Outcome CheckBuffers(std::span<const Buffer> buffers) {
  for (const Buffer& one : buffers) {
    if (one.at == nullptr) return Invalid(fmt::format("{} is null", one.name));
    if (!IsAligned(one.at)) return Invalid(fmt::format("{} is not aligned to 16 bytes", one.name));
    if (one.pitch < static_cast<size_t>(one.columns) || one.pitch > kMostPitch || one.pitch % 8 != 0) {
      return Invalid(fmt::format("a pitch of {} elements for {} columns of {}: at least as many, a multiple of 8",
                                 one.pitch, one.columns, one.name));
    }
  }
  return {};
}

// Rows of both may take turns.
bool DoOverlap(const Buffer& a, const Buffer& b) {
  if (a.at > b.at) return DoOverlap(b, a);
  const auto columns = [](const Buffer& of) { return static_cast<uintptr_t>(of.columns); };
  const uintptr_t behind = (reinterpret_cast<uintptr_t>(b.at) - reinterpret_cast<uintptr_t>(a.at)) / 2;  // elements
  if (behind >= static_cast<uintptr_t>(a.rows - 1) * a.pitch + columns(a)) return false;
  return a.pitch != b.pitch || behind % a.pitch < columns(a) || behind % a.pitch + columns(b) > a.pitch;
}

Outcome CheckTrained(std::span<const Buffer> buffers) {
  if (const Outcome checked = CheckBuffers(buffers); !checked) return checked;
  for (const Buffer& a : buffers) {
    for (const Buffer& b : buffers) {
      if (&a < &b && (a.is_written || b.is_written) && DoOverlap(a, b))
        return Invalid(fmt::format("{} and {} overlap", a.name, b.name));
    }
  }
  return {};
}

void* At(void* buffer, int64_t bytes) { return static_cast<char*>(buffer) + bytes; }

}  // namespace

Outcome Pipeline::Launch(CUstream stream, const void* x, size_t x_pitch, void* y, size_t y_pitch, int64_t rows) const {
  if (const Outcome checked = CheckRows(false, rows); !checked || rows == 0) return checked;
  const Buffer buffers[] = {{"the input", x, x_pitch, chain_.input(), rows},
                            {"the output", y, y_pitch, chain_.output(), rows, true}};
  if (const Outcome checked = CheckBuffers(buffers); !checked) return checked;
  return programs_[0]->Launch(stream, {.x = x, .x_pitch = x_pitch, .y = y, .y_pitch = y_pitch}, rows);
}

Outcome Pipeline::LaunchForward(CUstream stream, const void* x, size_t x_pitch, void* y, size_t y_pitch, void* saved,
                                int64_t rows) const {
  if (const Outcome checked = CheckRows(true, rows); !checked || rows == 0) return checked;
  const Buffer buffers[] = {{"x", x, x_pitch, chain_.input(), rows},
                            {"y", y, y_pitch, chain_.output(), rows, true},
                            Pieces("saved", saved, SavedBytes(chain_, rows), true)};
  if (const Outcome checked = CheckTrained(buffers); !checked) return checked;
  Matrices matrices{.x = x, .x_pitch = x_pitch, .y = y, .y_pitch = y_pitch};
  for (size_t i = 0; i + 1 < chain_.layers.size(); ++i) {
    matrices.saved[i] = At(saved, GradientsAt(chain_, i, rows));
    matrices.masks[i] = At(saved, MaskAt(chain_, i, rows));
  }
  return programs_[0]->Launch(stream, matrices, rows);
}

Outcome Pipeline::LaunchBackward(CUstream stream, const void* dy, size_t dy_pitch, const void* saved, void* dz,
                                 void* dx, size_t dx_pitch, int64_t rows) const {
  if (const Outcome checked = CheckRows(true, rows); !checked) return checked;
  const bool with_dx = use_ == Use::kTrainingWithDx;
  if (!with_dx && dx != nullptr) return Invalid("dx is not null, and the pipeline is instantiated without");
  if (rows == 0) return {};
  const Buffer buffers[] = {{"dy", dy, dy_pitch, chain_.output(), rows},
                            Pieces("saved", saved, SavedBytes(chain_, rows), false),
                            Pieces("dz", dz, GradientBytes(chain_, rows), true),
                            {"dx", dx, dx_pitch, chain_.input(), rows, true}};
  if (const Outcome checked = CheckTrained(std::span(buffers).first(with_dx ? 4 : 3)); !checked) return checked;
  Matrices matrices{.x = dy, .x_pitch = dy_pitch, .y = dx, .y_pitch = dx_pitch};
  if (!with_dx) matrices.y = dz, matrices.y_pitch = static_cast<size_t>(chain_.layers[0].out);
  for (size_t i = 0; i < programs_[1]->chain().layers.size(); ++i) {
    const size_t of = WeightsOf(chain_, i);
    if (of == 0) continue;
    matrices.saved[i] = At(dz, GradientsAt(chain_, of - 1, rows));
    matrices.masks[i] = At(const_cast<void*>(saved), MaskAt(chain_, of - 1, rows));
  }
  return programs_[1]->Launch(stream, matrices, rows);
}

}  // namespace tally::pipelines
