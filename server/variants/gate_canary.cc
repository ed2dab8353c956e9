#include "server/variants/gate_canary.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

#include "cubin-transforms/add_gates.h"
#include "proto/device/gate_abi.h"

namespace tally::server {
namespace {

constexpr uint32_t kBlocks = 3000;  // more than one wave of them
constexpr const char* kText = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry tally_canary(.param .u64 counts)
{
	.reg .b64 %rd<4>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [counts];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r1, %ctaid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	red.global.add.u32 [%rd3], 1;
	ret;
}
)";

class Canary {
 public:
  explicit Canary(const DriverTable& driver) : driver_(driver) {}
  ~Canary() {
    if (memory_ != 0) driver_.cuMemFree_v2(memory_);
    if (module_ != nullptr) driver_.cuModuleUnload(module_);
    if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
    if (link_ != nullptr) driver_.cuLinkDestroy(link_);
  }

  Status Load(uint32_t arch) {
    void* code = nullptr;
    size_t code_bytes = 0;
    CUresult result = driver_.cuLinkCreate_v2(0, nullptr, nullptr, &link_);
    if (result == CUDA_SUCCESS) {
      result = driver_.cuLinkAddData_v2(link_, CU_JIT_INPUT_PTX, const_cast<char*>(kText), std::strlen(kText) + 1,
                                        "canary", 0, nullptr, nullptr);
    }
    if (result == CUDA_SUCCESS) result = driver_.cuLinkComplete(link_, &code, &code_bytes);
    if (result != CUDA_SUCCESS) return Failed(result);
    const auto cubin = cubin_transforms::CubinForDevice({static_cast<const std::byte*>(code), code_bytes}, arch);
    if (!cubin) return Status(StatusCode::kUnimplemented, cubin.error().message());
    auto gated = cubin_transforms::AddGates(*cubin);
    if (!gated) return Status(StatusCode::kUnimplemented, gated.error().message());
    if (gated->kernels.size() != 1 || !gated->kernels[0].is_gated()) {
      return Status(StatusCode::kUnimplemented, "the kernel was refused");
    }
    hidden_offset_ = gated->kernels[0].hidden_offset;
    image_ = std::move(gated->cubin);
    result = driver_.cuModuleLoadDataEx(&module_, image_.data(), 0, nullptr, nullptr);
    if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&function_, module_, "tally_canary");
    if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS) result = driver_.cuMemAlloc_v2(&memory_, kRecordBytes + kBlocks * sizeof(uint32_t));
    return result == CUDA_SUCCESS ? Status() : Failed(result);
  }

  // One launch with the record as it is given. Blocks [first, last) must have run, once, and no others; `watermark` is
  // where it must have come to.
  Status Expect(const char* what, const device::GateRecord& record, uint32_t chunk, uint32_t first, uint32_t last) {
    std::vector<uint32_t> counts(kBlocks);
    device::GateRecord after{};
    device::GateParameters hidden{};
    if (chunk != 0) hidden = {memory_ | device::kGateOn, 0, chunk};
    std::vector<std::byte> parameters(hidden_offset_ + sizeof(hidden));
    const CUdeviceptr counts_at = memory_ + kRecordBytes;
    std::memcpy(parameters.data(), &counts_at, sizeof(counts_at));
    std::memcpy(parameters.data() + hidden_offset_, &hidden, sizeof(hidden));
    size_t size_bytes = parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size_bytes,
                     CU_LAUNCH_PARAM_END};
    CUresult result = driver_.cuMemsetD8Async(memory_, 0, kRecordBytes + kBlocks * sizeof(uint32_t), stream_);
    if (result == CUDA_SUCCESS) result = driver_.cuMemcpyHtoDAsync_v2(memory_, &record, sizeof(record), stream_);
    if (result == CUDA_SUCCESS) {
      result = driver_.cuLaunchKernel(function_, kBlocks, 1, 1, 32, 1, 1, 0, stream_, nullptr, extra);
    }
    if (result == CUDA_SUCCESS) {
      result = driver_.cuMemcpyDtoHAsync_v2(counts.data(), counts_at, counts.size() * sizeof(uint32_t), stream_);
    }
    if (result == CUDA_SUCCESS) result = driver_.cuMemcpyDtoHAsync_v2(&after, memory_, sizeof(after), stream_);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamSynchronize(stream_);
    if (result != CUDA_SUCCESS) return Failed(result);
    for (uint32_t i = 0; i < kBlocks; ++i) {
      const uint32_t wanted = i >= first && i < last ? 32 : 0;  // a count per thread
      if (counts[i] == wanted) continue;
      return Status(StatusCode::kInternal, fmt::format("{}: block {} counted {} of {}", what, i, counts[i], wanted));
    }
    const bool is_stopped = chunk == 0 || record.stopped != record.epoch;
    if (is_stopped ? after.watermark == record.watermark : after.watermark >= kBlocks) return Status();
    return Status(StatusCode::kInternal, fmt::format("{}: the watermark is {}", what, after.watermark));
  }

 private:
  static constexpr uint64_t kRecordBytes = 128;
  Status Failed(CUresult result) const {
    return Status(StatusCode::kUnimplemented, std::string("the driver says ") + CudaErrorName(driver_, result));
  }

  const DriverTable& driver_;
  std::vector<std::byte> image_;
  CUlinkState link_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
  uint32_t hidden_offset_ = 0;
};

}  // namespace

Status TryGate(const DriverTable& driver, uint32_t arch) {
  Canary canary(driver);
  if (Status s = canary.Load(arch); !s.ok()) return s;
  if (Status s = canary.Expect("off", {}, 0, 0, kBlocks); !s.ok()) return s;
  if (Status s = canary.Expect("open", {}, 64, 0, kBlocks); !s.ok()) return s;
  if (Status s = canary.Expect("stopped", {0, 1, 0, 0}, 64, 0, 0); !s.ok()) return s;
  if (Status s = canary.Expect("stopped half-way", {1000, 1, 0, 0}, 64, 0, 1000); !s.ok()) return s;
  return canary.Expect("resumed", {1000, 1, 1000, 1}, 64, 1000, kBlocks);
}

}  // namespace tally::server
