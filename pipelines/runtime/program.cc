#include "pipelines/runtime/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "pipelines/runtime/compiler.h"
#include "pipelines/stages/source.h"

namespace tally::pipelines {
namespace {

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
std::expected<std::vector<CUmodule>, Failure> LoadModules(const Driver& driver, const Machine& machine,
                                                          std::span<const std::string> sources) {
  // What the driver takes, once one has said: the software GPU has no machine code.
  static std::atomic<Code> code{Code::kMachineCode};
  for (;;) {
    const Code tried = code.load(std::memory_order_relaxed);
    const std::vector<Compiled> compiled =
        CompileAll(sources, Architecture(machine.compute_capability, machine.has_wgmma, tried));
    if (const auto failed = std::ranges::find(compiled, false, &Compiled::has_value); failed != compiled.end()) {
      // NVRTC may be older than the GPU.
      if (tried == Code::kPtx || machine.has_wgmma) return Fail(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, failed->error());
      code.store(Code::kPtx, std::memory_order_relaxed);
      continue;
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
  // What names the matrices (a map is the longest), five pointers a layer, and what is at the end.
  static constexpr size_t kMostBytes = 128 * (kMostLayers + 1) + 40 * kMostLayers + 64;

  void* Bytes() { return bytes_; }
  template <typename T>
  void Append(const T& value) {
    std::memcpy(bytes_ + size_, &value, sizeof value);
    size_ += sizeof value;
  }
  void AppendMatrix(const void* at, size_t pitch) {
    Append(at);
    Append(static_cast<long long>(pitch));
  }

 private:
  alignas(64) char bytes_[kMostBytes] = {};
  size_t size_ = 0;
};

}  // namespace

Program::~Program() {
  const auto& driver = TheDriver();
  if (kernels_.empty() || !driver || driver->ctx_push_current(context_) != CUDA_SUCCESS)
    return;  // the context is gone, and the code with it
  for (const Kernel& kernel : kernels_) driver->module_unload(kernel.module);
  CUcontext popped = nullptr;
  driver->ctx_pop_current(&popped);
}

Outcome Program::Prepare(const Driver& driver, Kernel& kernel) const {
  CUresult result = driver.module_get_function(&kernel.function, kernel.module, kKernelName);
  if (result == CUDA_SUCCESS) {
    result = driver.func_set_attribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       SharedBytes(chain_, kernel.variant));
  }
  if (result != CUDA_SUCCESS) return Fail(result, fmt::format("the kernel is not usable: {}", driver.Describe(result)));
  return kernel.variant.wgmma ? EncodeWeights(driver, kernel) : Outcome{};
}

Outcome Program::EncodeWeights(const Driver& driver, Kernel& kernel) const {
  for (size_t i = 0; i < chain_.layers.size(); ++i) {
    const Layer& layer = chain_.layers[i];
    const int in = ColumnsOf(chain_, layer);
    const int box = chain_.transposed ? kPanelColumns : kernel.variant.resident ? layer.out : FirstHalf(layer);
    const CUresult result =
        Encode(driver, &kernel.weights.emplace_back(), chain_.element, operands_[i].weights, operands_[i].weights_pitch,
               static_cast<uint64_t>(chain_.transposed ? in : layer.out),
               static_cast<uint64_t>(chain_.transposed ? layer.out : in), static_cast<uint32_t>(box));
    if (result != CUDA_SUCCESS)
      return Fail(result, fmt::format("the weights of layer {}: {}", i, driver.Describe(result)));
  }
  return {};
}

Outcome Program::Instantiate(std::span<const std::unique_ptr<Program>> programs, const Machine& machine,
                             int64_t max_rows) {
  const Driver& driver = *TheDriver();
  std::vector<std::string> sources;
  for (const auto& program : programs) {
    const Chain& chain = program->chain_;
    if (const auto checked = Check(chain, machine, max_rows); !checked) {
      return Fail(CUDA_ERROR_NOT_SUPPORTED,
                  chain.transposed ? "the backward pass: " + checked.error() : checked.error());
    }
    program->machine_ = machine;
    program->variants_ = VariantsFor(chain, machine, max_rows);
    for (const Variant& variant : program->variants_) sources.push_back(KernelSource(chain, variant));
  }
  const auto modules = LoadModules(driver, machine, sources);
  if (!modules) return std::unexpected(modules.error());
  // All have their modules, and unload them, before anything else may fail.
  auto module = modules->begin();
  for (const auto& program : programs) {
    driver.ctx_get_current(&program->context_);
    for (const Variant& variant : program->variants_) program->kernels_.emplace_back(variant, *module++);
  }
  for (const auto& program : programs) {
    for (Kernel& kernel : program->kernels_) {
      if (const Outcome outcome = program->Prepare(driver, kernel); !outcome) return outcome;
    }
  }
  return {};
}

Outcome Program::Launch(CUstream stream, const Matrices& matrices, int64_t rows) const {
  const Driver& driver = *TheDriver();
  const Plan plan = Choose(rows);
  const auto kernel = std::ranges::find(kernels_, plan.variant, &Kernel::variant);
  Parameters parameters;
  if (plan.variant.wgmma) {
    CUtensorMap x_map;
    if (const CUresult result = Encode(driver, &x_map, chain_.element, matrices.x, matrices.x_pitch,
                                       static_cast<uint64_t>(rows), static_cast<uint64_t>(chain_.input()), kTileRows);
        result != CUDA_SUCCESS) {
      return Fail(result, fmt::format("the input: {}", driver.Describe(result)));
    }
    parameters.Append(x_map);
    for (const CUtensorMap& map : kernel->weights) parameters.Append(map);
  } else {
    parameters.AppendMatrix(matrices.x, matrices.x_pitch);
    for (const LayerOperands& operands : operands_) parameters.AppendMatrix(operands.weights, operands.weights_pitch);
  }
  for (const auto vector : {&LayerOperands::bias, &LayerOperands::scale, &LayerOperands::shift}) {
    for (const LayerOperands& operands : operands_) parameters.Append(operands.*vector);
  }
  for (const auto* addresses : {&matrices.saved, &matrices.masks}) {
    for (size_t i = 0; i < chain_.layers.size(); ++i) parameters.Append((*addresses)[i]);
  }
  parameters.Append(matrices.y);
  parameters.Append(static_cast<long long>(matrices.y_pitch));
  parameters.Append(static_cast<int>(rows));

  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(plan.grid);
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = static_cast<unsigned>(Threads(plan.variant));
  config.sharedMemBytes = static_cast<unsigned>(SharedBytes(chain_, plan.variant));
  config.hStream = stream;
  void* pointers[] = {parameters.Bytes()};
  if (const CUresult result = driver.launch_kernel_ex(&config, kernel->function, pointers, nullptr);
      result != CUDA_SUCCESS) {
    return Fail(result, fmt::format("the launch: {}", driver.Describe(result)));
  }
  return {};
}

}  // namespace tally::pipelines
