#include "pipelines/runtime/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "pipelines/runtime/compiler.h"
#include "pipelines/stages/source.h"

namespace tally::pipelines {
namespace {

constexpr uintptr_t kAlignment = 16;  // of what bulk copies read and wide stores write
constexpr size_t kMostPitch = size_t{1} << 30;

std::unexpected<Failure> Fail(CUresult result, std::string sentence) {
  return std::unexpected(Failure{result, std::move(sentence)});
}
std::unexpected<Failure> Invalid(std::string sentence) { return Fail(CUDA_ERROR_INVALID_VALUE, std::move(sentence)); }

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kAlignment == 0; }

// Boxes of `rows` rows and 64 columns; what lies outside of the matrix is read as zero.
CUresult Encode(const Driver& driver, CUtensorMap* map, Element element, const void* matrix, size_t pitch,
                uint64_t rows, uint64_t columns, uint32_t box_rows) {
  const cuuint64_t sizes[] = {columns, rows};
  const cuuint64_t strides[] = {pitch * 2};
  const cuuint32_t box[] = {kPanelColumns, box_rows};
  const cuuint32_t steps[] = {1, 1};
  return driver.tensor_map_encode_tiled(
      map, element == Element::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
      const_cast<void*>(matrix), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// One of each source, in order; or none at all.
std::expected<std::vector<CUmodule>, Failure> LoadModules(const Driver& driver, std::span<const std::string> sources) {
  // What the driver takes, once one has said: the software GPU has no machine code.
  static std::atomic<Code> code{Code::kMachineCode};
  for (;;) {
    const Code tried = code.load(std::memory_order_relaxed);
    const std::vector<Compiled> compiled = CompileAll(sources, tried);
    for (const Compiled& one : compiled) {
      if (!one) return Fail(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, one.error());
    }
    std::vector<CUmodule> modules;
    CUresult result = CUDA_SUCCESS;
    for (const Compiled& one : compiled) {
      CUmodule module = nullptr;
      result = driver.module_load_data(&module, one->data());
      if (result != CUDA_SUCCESS) break;
      modules.push_back(module);
    }
    if (result == CUDA_SUCCESS) return modules;
    for (CUmodule module : modules) driver.module_unload(module);
    if (result != CUDA_ERROR_NO_BINARY_FOR_GPU || tried == Code::kPtx) {
      return Fail(result, fmt::format("the kernel was not loaded: {}", driver.Describe(result)));
    }
    code.store(Code::kPtx, std::memory_order_relaxed);
  }
}

// The kernel's one parameter, laid out as tally_pipeline::Parameters of stages/common.cuh.
class Parameters {
 public:
  // 32 layers: maps, three pointers each, and what is at the end.
  static constexpr size_t kMostBytes = 128 * 33 + 24 * 32 + 64;

  void* Bytes() { return bytes_; }
  template <typename T>
  void Append(const T& value) {
    std::memcpy(bytes_ + size_, &value, sizeof value);
    size_ += sizeof value;
  }

 private:
  alignas(64) char bytes_[kMostBytes] = {};
  size_t size_ = 0;
};

}  // namespace

Pipeline::~Pipeline() {
  if (context_ == nullptr) return;
  const auto& driver = TheDriver();
  if (!driver || driver->ctx_push_current(context_) != CUDA_SUCCESS)
    return;  // the context is gone, and the code with it
  for (const Kernel& kernel : kernels_) driver->module_unload(kernel.module);
  CUcontext popped = nullptr;
  driver->ctx_pop_current(&popped);
}

Outcome Pipeline::AddLinear(const LayerOperands& operands, int in, int out) {
  if (context_ != nullptr) return Invalid("the pipeline is instantiated; make another one");
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
  if (context_ != nullptr) return Invalid("the pipeline is instantiated; make another one");
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

Outcome Pipeline::Prepare(const Driver& driver, Kernel& kernel) const {
  CUresult result = driver.module_get_function(&kernel.function, kernel.module, kKernelName);
  if (result == CUDA_SUCCESS) {
    result = driver.func_set_attribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       SharedBytes(chain_, kernel.variant));
  }
  if (result != CUDA_SUCCESS) return Fail(result, fmt::format("the kernel is not usable: {}", driver.Describe(result)));
  return EncodeWeights(driver, kernel);
}

Outcome Pipeline::EncodeWeights(const Driver& driver, Kernel& kernel) const {
  for (size_t i = 0; i < chain_.layers.size(); ++i) {
    const Layer& layer = chain_.layers[i];
    const CUresult result =
        Encode(driver, &kernel.weights.emplace_back(), chain_.element, operands_[i].weights, operands_[i].weights_pitch,
               static_cast<uint64_t>(layer.out), static_cast<uint64_t>(ColumnsOf(chain_, layer)),
               static_cast<uint32_t>(kernel.variant.resident ? layer.out : FirstHalf(layer)));
    if (result != CUDA_SUCCESS)
      return Fail(result, fmt::format("the weights of layer {}: {}", i, driver.Describe(result)));
  }
  return {};
}

Outcome Pipeline::Instantiate(int64_t max_rows) {
  if (context_ != nullptr) return Invalid("the pipeline is instantiated");
  if (next_takes_input_ != TakesInput::kNo) return Invalid("a concatenation without a linear layer behind it");
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
  machine_.compute_capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  machine_.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  machine_.shared_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (const auto checked = Check(chain_, machine_, max_rows); !checked)
    return Fail(CUDA_ERROR_NOT_SUPPORTED, checked.error());

  variants_ = VariantsFor(chain_, machine_, max_rows);
  std::vector<std::string> sources;
  for (const Variant& variant : variants_) sources.push_back(KernelSource(chain_, variant));
  const auto modules = LoadModules(*driver, sources);
  if (!modules) {
    variants_.clear();
    return std::unexpected(modules.error());
  }
  for (size_t i = 0; i < variants_.size(); ++i) kernels_.emplace_back(variants_[i], (*modules)[i]);
  Outcome outcome;
  for (Kernel& kernel : kernels_) {
    if (outcome) outcome = Prepare(*driver, kernel);
  }
  if (!outcome) {
    for (const Kernel& kernel : kernels_) driver->module_unload(kernel.module);
    kernels_.clear();
    variants_.clear();
    return outcome;
  }
  context_ = context;
  max_rows_ = max_rows;
  return {};
}

std::expected<Plan, Failure> Pipeline::Query(int64_t rows) const {
  if (context_ == nullptr) return Invalid("the pipeline is not instantiated");
  if (rows < 0 || rows > max_rows_) return Invalid(fmt::format("{} rows; 0 to {} were instantiated", rows, max_rows_));
  if (rows == 0) return Plan{};
  return Choose(chain_, machine_, variants_, rows);
}

Outcome Pipeline::Launch(CUstream stream, const void* x, size_t x_pitch, void* y, size_t y_pitch, int64_t rows) const {
  const auto plan = Query(rows);
  if (!plan) return std::unexpected(plan.error());
  if (rows == 0) return {};
  if (x == nullptr || y == nullptr) return Invalid("the input or the output is null");
  if (!IsAligned(x) || !IsAligned(y)) return Invalid("the input or the output is not aligned to 16 bytes");
  const auto fits = [](size_t pitch, int columns) {
    return pitch >= static_cast<size_t>(columns) && pitch <= kMostPitch && pitch % 8 == 0;
  };
  if (!fits(x_pitch, chain_.input()) || !fits(y_pitch, chain_.output())) {
    return Invalid(fmt::format("pitches of {} and {} elements for {} and {} columns: at least as many, multiples of 8",
                               x_pitch, y_pitch, chain_.input(), chain_.output()));
  }
  const Driver& driver = *TheDriver();
  CUtensorMap x_map;
  if (const CUresult result = Encode(driver, &x_map, chain_.element, x, x_pitch, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(chain_.input()), kTileRows);
      result != CUDA_SUCCESS) {
    return Fail(result, fmt::format("the input: {}", driver.Describe(result)));
  }
  const auto kernel = std::ranges::find(kernels_, plan->variant, &Kernel::variant);
  Parameters parameters;
  parameters.Append(x_map);
  for (const CUtensorMap& map : kernel->weights) parameters.Append(map);
  for (const auto vector : {&LayerOperands::bias, &LayerOperands::scale, &LayerOperands::shift}) {
    for (const LayerOperands& operands : operands_) parameters.Append(operands.*vector);
  }
  parameters.Append(y);
  parameters.Append(static_cast<long long>(y_pitch));
  parameters.Append(static_cast<int>(rows));

  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(plan->grid);
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = static_cast<unsigned>(Threads(plan->variant));
  config.sharedMemBytes = static_cast<unsigned>(SharedBytes(chain_, plan->variant));
  config.hStream = stream;
  void* pointers[] = {parameters.Bytes()};
  if (const CUresult result = driver.launch_kernel_ex(&config, kernel->function, pointers, nullptr);
      result != CUDA_SUCCESS) {
    return Fail(result, fmt::format("the launch: {}", driver.Describe(result)));
  }
  return {};
}

}  // namespace tally::pipelines
