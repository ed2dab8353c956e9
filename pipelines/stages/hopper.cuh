// What both forms for Hopper (sm_90a) are made of: products by wgmma, weights and rows by bulk tensor copies.

namespace tally_pipeline {

// --- barriers and copies --------------------------------------------------------------------------------------------

__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void ExpectBytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Nobody waits for the arrival itself.
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void CopyBox(uint32_t to, const Matrix& map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void PrefetchMaps(const Parameters& parameters) {
  if (threadIdx.x < kNumLayers) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&parameters.weights[threadIdx.x]) : "memory");
  }
}
// To the copy engine, too.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

// --- products --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void AwaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// The compiler must not move what the products write or read across this.
template <int kCount>
__device__ __forceinline__ void Pin(float* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void Pin(uint32_t* left) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(left[i])::"memory");
}
// Of what the left operand meets in shared memory: rows of 128 bytes, swizzled, groups of 8 rows 1024 bytes apart.
__device__ __forceinline__ uint64_t Descriptor(uint32_t address, uint32_t leading_bytes = 16) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
// Of a panel. Transposed: the next 64 columns are one box further on.
__device__ __forceinline__ uint64_t RightDescriptor(uint32_t address) {
  return Descriptor(address, kTransposed ? kPanelColumns * kPanelRowBytes : 16);
}
// From one product to the next, 16 columns of the left operand: in units of 16 bytes.
constexpr uint32_t kLeftStep = 2;
constexpr uint32_t kRightStep = kTransposed ? 16 * kPanelRowBytes >> 4 : kLeftStep;
// The panel that meets columns `k` on of the left operand, for columns `column` on of the layer.
template <int kWidth>
__device__ __forceinline__ void CopyPanel(uint32_t to, const Matrix& weights, int k, int column, uint32_t barrier) {
  if constexpr (kTransposed) {
#pragma unroll
    for (int box = 0; box < kWidth; box += kPanelColumns) CopyBox(to + box * kPanelRowBytes, weights, column + box, k, barrier);
  } else {
    CopyBox(to, weights, k, column, barrier);
  }
}

// --- places of barriers; rows of the input ---------------------------------------------------------------------------

__device__ __forceinline__ uint32_t Full(const Place& at, uint32_t stage) { return at.shared + kBarriersAt + 8 * stage; }
__device__ __forceinline__ uint32_t Empty(const Place& at, uint32_t stage) {
  return at.shared + kBarriersAt + 8 * (kStages + stage);
}
__device__ __forceinline__ uint32_t RowsHere(const Place& at, int warpgroup) {
  return at.shared + kBarriersAt + 8 * (2 * kStages + warpgroup);
}

__device__ __forceinline__ void FetchRows(const Parameters& parameters, const Place& at, uint32_t barrier, int tile) {
  ExpectBytes(barrier, kSlotBytes);
#pragma unroll
  for (int panel = 0; panel < kXPanels; ++panel) {
    CopyBox(at.slot + panel * kXPanelBytes, parameters.x, panel * kPanelColumns, tile * kRows, barrier);
  }
}

__device__ __forceinline__ void AwaitWarpgroup(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
}

}  // namespace tally_pipeline
