#include "server/executor/issue/gate_canary.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "cubin-transforms/add_gates.h"
#include "proto/device/gate_abi.h"
#include "server/executor/driver/driver_linker.h"

namespace tally::server {
namespace {

constexpr uint32_t kNumBlocks = 4096;  // several waves on every GPU
constexpr uint32_t kNumThreads = 64;
constexpr uint32_t kChunk = 64;

// Each block counts itself.
constexpr const char* kKernel = "tally_canary";
constexpr const char* kPtx = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry tally_canary(.param .u64 counts)
{
	.reg .pred %p1;
	.reg .b32 %r<3>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [counts];
	mov.u32 %r1, %tid.x;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra done;
	mov.u32 %r2, %ctaid.x;
	mul.wide.u32 %rd2, %r2, 4;
	add.u64 %rd1, %rd1, %rd2;
	red.global.add.u32 [%rd1], 1;
done:
	ret;
}
)";

// Everything the test makes; released with it.
class Canary {
 public:
  explicit Canary(const DriverTable& driver) : driver_(driver) {}
  ~Canary() {
    if (module_ != nullptr) driver_.cuModuleUnload(module_);
    if (memory_ != 0) driver_.cuMemFree_v2(memory_);
    if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  }
  Canary(const Canary&) = delete;
  Canary& operator=(const Canary&) = delete;

  Status Run() {
    TALLY_RETURN_IF_ERROR(Load());
    TALLY_RETURN_IF_ERROR(Step("with its gate off", std::nullopt, 0, 1, 1));
    // Nothing was promised to any block: none may begin.
    TALLY_RETURN_IF_ERROR(Step("stopped before it began", device::GateRecord{0, 1, 0, 0}, 0, 1, 1));
    TALLY_RETURN_IF_ERROR(Step("resumed", device::GateRecord{0, 1, 0, 1}, 0, 2, 2));
    constexpr uint32_t kBase = 1000, kHalf = kBase + kNumBlocks / 2;
    TALLY_RETURN_IF_ERROR(Step("stopped half-way", device::GateRecord{kHalf, 2, 0, 1}, kBase, 3, 2));
    return Step("resumed half-way", device::GateRecord{kHalf, 2, kHalf, 2}, kBase, 3, 3);
  }

 private:
  Status Check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return OkStatus();
    return Status(StatusCode::kUnavailable, fmt::format("{}: {}", what, CudaErrorName(driver_, result)));
  }

  Status Load() {
    const auto ptx = std::as_bytes(std::span(kPtx, std::strlen(kPtx) + 1));
    const auto cubin = LinkWithDriver(driver_, CU_JIT_INPUT_PTX, ptx, kKernel);
    if (!cubin) return cubin.error();
    const auto gated = cubin_transforms::AddGates(*cubin);
    if (!gated) return Status(StatusCode::kUnavailable, gated.error().message());
    if (gated->kernels.size() != 1 || !gated->kernels[0].is_gated()) {
      return Status(StatusCode::kUnavailable, gated->kernels.empty() ? "no kernel" : gated->kernels[0].refusal);
    }
    hidden_offset_ = gated->kernels[0].hidden_offset;
    CUresult result = driver_.cuModuleLoadData(&module_, gated->cubin.data());
    if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&function_, module_, kKernel);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS) result = driver_.cuMemAlloc_v2(&memory_, kRecordBytes + sizeof(counts_));
    if (result == CUDA_SUCCESS) {
      result = driver_.cuMemsetD32Async(memory_, 0, (kRecordBytes + sizeof(counts_)) / sizeof(uint32_t), stream_);
    }
    return Check(result, "the driver does not load a cubin with gates");
  }

  // One launch; then every block of the first half must have run `first` times in all, of the second `second` times.
  Status Step(const char* what, const std::optional<device::GateRecord>& record, uint32_t base, uint32_t first,
              uint32_t second) {
    CUresult result = CUDA_SUCCESS;
    device::GateParameters hidden{};
    if (record) {
      hidden = {memory_ | device::kGateOn, base, kChunk};
      result = driver_.cuMemcpyHtoDAsync_v2(memory_, &*record, sizeof(*record), stream_);
    }
    std::vector<std::byte> parameters(hidden_offset_ + sizeof(hidden));
    const CUdeviceptr counts = memory_ + kRecordBytes;
    std::memcpy(parameters.data(), &counts, sizeof(counts));
    std::memcpy(parameters.data() + hidden_offset_, &hidden, sizeof(hidden));
    size_t size_bytes = parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size_bytes,
                     CU_LAUNCH_PARAM_END};
    if (result == CUDA_SUCCESS) {
      result = driver_.cuLaunchKernel(function_, kNumBlocks, 1, 1, kNumThreads, 1, 1, 0, stream_, nullptr, extra);
    }
    if (result == CUDA_SUCCESS) result = driver_.cuMemcpyDtoHAsync_v2(counts_.data(), counts, sizeof(counts_), stream_);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamSynchronize(stream_);
    TALLY_RETURN_IF_ERROR(Check(result, "a kernel with a gate failed"));
    for (uint32_t block = 0; block < kNumBlocks; ++block) {
      const uint32_t expected = block < kNumBlocks / 2 ? first : second;
      if (counts_[block] == expected) continue;
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("a kernel that was {}: block {} has run {} times by now, not {}", what, block,
                                counts_[block], expected));
    }
    return OkStatus();
  }

  static constexpr uint64_t kRecordBytes = device::kGateRecordAlignment;

  const DriverTable& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;  // the record, and behind it the counts
  uint32_t hidden_offset_ = 0;
  std::array<uint32_t, kNumBlocks> counts_{};
};

}  // namespace

Status TestGates(const DriverTable& driver) { return Canary(driver).Run(); }

}  // namespace tally::server
