#include "server/executor/driver/upload_kernels.h"

#include <algorithm>

namespace tally::server {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMostBlocks = 16;  // 64 KiB are on their way at once: more than the bus has in flight

// 16 bytes a thread and turn where both sides are aligned, else a byte; the rest by bytes.
constexpr const char* kUploadPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry tally_upload(.param .u64 to, .param .u64 from, .param .u64 size) {
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %d<12>;
  ld.param.u64 %d0, [to];
  ld.param.u64 %d1, [from];
  ld.param.u64 %d2, [size];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mad.wide.u32 %d3, %r0, %r1, 0;
  cvt.u64.u32 %d4, %r2;
  add.u64 %d3, %d3, %d4;
  mul.wide.u32 %d4, %r3, %r1;
  or.b64 %d5, %d0, %d1;
  and.b64 %d5, %d5, 15;
  setp.ne.u64 %p0, %d5, 0;
  mov.u64 %d6, 0;
  @%p0 bra bytes;
  shr.u64 %d6, %d2, 4;
  mov.u64 %d7, %d3;
words:
  setp.ge.u64 %p1, %d7, %d6;
  @%p1 bra words_done;
  shl.b64 %d8, %d7, 4;
  add.u64 %d9, %d1, %d8;
  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d9];
  add.u64 %d9, %d0, %d8;
  st.global.v4.u32 [%d9], {%r4, %r5, %r6, %r7};
  add.u64 %d7, %d7, %d4;
  bra words;
words_done:
  shl.b64 %d6, %d6, 4;
bytes:
  add.u64 %d7, %d6, %d3;
each:
  setp.ge.u64 %p1, %d7, %d2;
  @%p1 bra done;
  add.u64 %d9, %d1, %d7;
  ld.global.u8 %r4, [%d9];
  add.u64 %d9, %d0, %d7;
  st.global.u8 [%d9], %r4;
  add.u64 %d7, %d7, %d4;
  bra each;
done:
  ret;
}
)";

}  // namespace

CUfunction UploadKernels::FunctionOf(int device) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = code_.try_emplace(device);
  Code& code = place->second;
  if (is_new && driver_.cuModuleLoadDataEx(&code.module, kUploadPtx, 0, nullptr, nullptr) == CUDA_SUCCESS) {
    driver_.cuModuleGetFunction(&code.function, code.module, "tally_upload");
  }
  return code.function;
}

bool UploadKernels::Copy(int device, CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream,
                         CUresult* result) {
  const CUfunction function = FunctionOf(device);
  if (function == nullptr) return false;
  const uint64_t num_units = (to | from) % 16 == 0 ? size_bytes / 16 + 1 : size_bytes;
  const auto num_blocks = static_cast<unsigned>(std::min((num_units + kThreads - 1) / kThreads, kMostBlocks));
  void* parameters[] = {&to, &from, &size_bytes};
  *result = driver_.cuLaunchKernel(function, num_blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr);
  return true;
}

}  // namespace tally::server
