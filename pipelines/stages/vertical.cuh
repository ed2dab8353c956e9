// The vertical kernel: a chain of linear layers in one kernel. A warpgroup takes 64 rows through all layers; what is
// between two layers stays in its registers.
//
// Made for Hopper (sm_90a): products by wgmma, weights and rows by bulk tensor copies. Compiled by NVRTC behind a
// prologue that pipelines/stages/source.cc writes: the types, macros and the table of layers used below.
//
//   registers   the products of a layer (fp32) become, with bias, activation and norm, the left operand of the next
//   shared      rows of the chain's input, one slot a warpgroup; weights: all of them, or a ring of panels
//   a panel     64 columns of the weights of a layer, `out` rows of 128 bytes, in the layout of 128-byte swizzling
//
// The left operand of wgmma has, in registers, the same layout as its result: row 16*warp + lane/4 (and 8 further
// down), columns 8*j + 2*(lane%4) and the next. So nothing moves between threads from layer to layer.
//
// Streamed weights: each block of a cluster fetches its part of a panel and sends it to all. No thread is there only to
// copy, because it would cost registers that the others need: thread 0 does so one panel late, while products run. All
// warpgroups of a cluster go through the same number of tiles, some perhaps empty.

namespace tally_pipeline {

constexpr int kRows = 64;  // of a tile: what one wgmma takes
constexpr int kPanelColumns = 64;
constexpr int kPanelRowBytes = 128;
constexpr int kWarpgroupThreads = 128;
constexpr int kComputeThreads = kWarpgroups * kWarpgroupThreads;
constexpr uint32_t kXPanelBytes = kRows * kPanelRowBytes;

__device__ constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }
__device__ constexpr int MostOut() {
  int most = 0;
  for (const Layer& layer : kLayers) most = layer.out > most ? layer.out : most;
  return most;
}
constexpr int kNumLayers = sizeof(kLayers) / sizeof(kLayers[0]);
constexpr int kInput = kLayers[0].hidden;  // columns of the chain's input
constexpr int kXPanels = CeilDiv(kInput, kPanelColumns);
constexpr uint32_t kSlotBytes = kXPanels * kXPanelBytes;
// Panels of a layer: those that meet the hidden values, then those that meet the chain's input once more.
__device__ constexpr int HiddenPanels(int i) { return CeilDiv(kLayers[i].hidden, kPanelColumns); }
__device__ constexpr int Panels(int i) { return HiddenPanels(i) + (kLayers[i].takes_input ? kXPanels : 0); }
__device__ constexpr uint32_t PanelBytes(int i) { return kLayers[i].out * kPanelRowBytes; }
__device__ constexpr uint32_t WeightsBefore(int i) {
  uint32_t bytes = 0;
  for (int j = 0; j < i; ++j) bytes += Panels(j) * PanelBytes(j);
  return bytes;
}
__device__ constexpr int PanelsBefore(int i) {
  int panels = 0;
  for (int j = 0; j < i; ++j) panels += Panels(j);
  return panels;
}
__device__ constexpr int LayerOf(int panel) {
  int i = 0;
  while (PanelsBefore(i + 1) <= panel) ++i;
  return i;
}
// Where in the weights of its layer panel number `panel` of layer i begins.
__device__ constexpr int ColumnOf(int i, int panel) {
  return panel < HiddenPanels(i) ? kLayers[i].hidden_at + panel * kPanelColumns
                                 : kLayers[i].input_at + (panel - HiddenPanels(i)) * kPanelColumns;
}
__device__ constexpr int VectorsBefore(int i) {
  int floats = 0;
  for (int j = 0; j < i; ++j) floats += kLayers[j].out * (kLayers[j].norm == kNoNorm ? 1 : 3);
  return floats;
}
// The last layer that reads the slot of the chain's input: after it the next tile's rows may come.
__device__ constexpr int LastUseOfInput() {
  int last = 0;
  for (int i = 0; i < kNumLayers; ++i) {
    if (kLayers[i].takes_input || kLayers[i].residual) last = i;
  }
  return last;
}
constexpr int kPanelsOfTile = PanelsBefore(kNumLayers);
static_assert(!kStreamed || kStages <= kPanelsOfTile);
constexpr uint32_t kStageBytes = MostOut() * kPanelRowBytes;
constexpr uint32_t kWeightBytes = kStreamed ? kStages * kStageBytes : WeightsBefore(kNumLayers);

// Shared memory: weights, slots, vectors (bias, scale, shift of each layer, fp32), barriers.
constexpr uint32_t kSlotsAt = kWeightBytes;
constexpr uint32_t kVectorsAt = kSlotsAt + kWarpgroups * kSlotBytes;
constexpr uint32_t kBarriersAt = kVectorsAt + ((VectorsBefore(kNumLayers) * 4 + 15) & ~15);
constexpr uint32_t kSharedBytes = kBarriersAt + 8 * (2 * kStages + kWarpgroups);

struct alignas(64) TensorMap {
  uint64_t words[16];
};
struct Parameters {
  TensorMap x;
  TensorMap weights[kNumLayers];
  const Element* bias[kNumLayers];   // null: none
  const Element* scale[kNumLayers];  // of the norm
  const Element* shift[kNumLayers];
  Element* y;
  long long y_pitch;  // elements
  int rows;
};

// Of one thread: the products of a layer, and the left operand of the next.
struct Sums {
  float of[MostOut() / 2];
};
struct Left {
  uint32_t of[MostOut() / 4];
};

// --- barriers and copies --------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t Shared(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
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
// Waits for arrivals of other blocks of the cluster, too.
__device__ __forceinline__ void WaitForCluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ uint32_t InBlock(uint32_t address, uint32_t block_of_cluster) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block_of_cluster));
  return there;
}
// Of a barrier in a block of the cluster; nobody waits for the arrival itself.
__device__ __forceinline__ void ArriveIn(uint32_t block_of_cluster, uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(InBlock(barrier, block_of_cluster)) : "memory");
}
__device__ __forceinline__ void CopyBox(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// To the same place of each block of the cluster; each one's barrier at that place learns of the bytes.
__device__ __forceinline__ void CopyBoxToAll(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory");
}
__device__ __forceinline__ uint32_t BlockOfCluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void AwaitCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- products --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void AwaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// The compiler must not move what the products write or read across this.
template <int kOut>
__device__ __forceinline__ void Pin(Sums& sums) {
#pragma unroll
  for (int i = 0; i < kOut / 2; ++i) asm volatile("" : "+f"(sums.of[i])::"memory");
}
template <int kColumns>
__device__ __forceinline__ void PinLeft(Left& left) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) asm volatile("" : "+r"(left.of[i])::"memory");
}
// The same address, computed again: else the compiler keeps what follows from it, for each product of all layers, in
// registers from tile to tile, and there are none to spare.
__device__ __forceinline__ uint32_t Anew(uint32_t address) {
  asm volatile("" : "+r"(address));
  return address;
}
// Of a panel in shared memory: rows of 128 bytes, swizzled, groups of 8 rows 1024 bytes apart.
__device__ __forceinline__ uint64_t Descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// --- elements --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t Pack(float low, float high) {
  uint32_t packed;
#if TALLY_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#endif
  return packed;
}
__device__ __forceinline__ float Low(uint32_t packed) {
#if TALLY_BF16
  return __uint_as_float(packed << 16);
#else
  float value;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(value) : "r"(packed));
  return value;
#endif
}
__device__ __forceinline__ float High(uint32_t packed) {
#if TALLY_BF16
  return __uint_as_float(packed & 0xffff0000u);
#else
  float value;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(packed));
  return value;
#endif
}
__device__ __forceinline__ float Value(const Element* at) { return Low(*reinterpret_cast<const uint16_t*>(at)); }
// What the framework would have stored between two of its kernels.
__device__ __forceinline__ void Round(float& a, float& b) {
  const uint32_t packed = Pack(a, b);
  a = Low(packed);
  b = High(packed);
}

template <int kActivation>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (kActivation == kRelu) return x < 0.f ? 0.f : x;  // a NaN passes
  if constexpr (kActivation == kGelu) return 0.5f * x * (1.f + erff(x * 0.70710678f));
  if constexpr (kActivation == kGeluTanh) {
    const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.f + tanhf(inner));
  }
  if constexpr (kActivation == kSilu) return x / (1.f + __expf(-x));
  return x;
}

// Both halves; a NaN passes.
__device__ __forceinline__ uint32_t ReluOfBoth(uint32_t packed) {
#if TALLY_BF16
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(packed) : "r"(0u));
#else
  asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(packed) : "r"(0u));
#endif
  return packed;
}

// --- a layer ---------------------------------------------------------------------------------------------------------

// Where in the ring of weights a warpgroup is.
struct Ring {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void Next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

struct Place {
  uint32_t shared;   // start of the dynamic shared memory
  uint32_t slot;     // of this warpgroup
  uint32_t thread;   // in the warpgroup
  const float* vectors;
};

__device__ __forceinline__ uint32_t Full(const Place& at, uint32_t stage) { return at.shared + kBarriersAt + 8 * stage; }
__device__ __forceinline__ uint32_t Empty(const Place& at, uint32_t stage) {
  return at.shared + kBarriersAt + 8 * (kStages + stage);
}
__device__ __forceinline__ uint32_t RowsHere(const Place& at, int warpgroup) {
  return at.shared + kBarriersAt + 8 * (2 * kStages + warpgroup);
}

// This block's part of panel number `kPanel` of a tile into a place of the ring, for each block of the cluster.
template <int kPanel>
__device__ __forceinline__ void FetchPanel(const Parameters& parameters, const Place& at, uint32_t stage) {
  constexpr int kLayer = LayerOf(kPanel);
  constexpr int kColumn = ColumnOf(kLayer, kPanel - PanelsBefore(kLayer));
  constexpr int kPart = kLayers[kLayer].out / kCluster;
  const uint32_t barrier = Full(at, stage);
  const uint32_t to = at.shared + stage * kStageBytes;
  ExpectBytes(barrier, PanelBytes(kLayer));
  if constexpr (kCluster == 1) {
    CopyBox(to, parameters.weights[kLayer], kColumn, 0, barrier);
  } else {
    const int row = static_cast<int>(BlockOfCluster()) * kPart;
    CopyBoxToAll(to + row * kPanelRowBytes, parameters.weights[kLayer], kColumn, row, barrier);
  }
}

// This warpgroup is done with what is at `stage`.
__device__ __forceinline__ void Release(const Place& at, uint32_t stage) {
  if (at.thread < kCluster) ArriveIn(at.thread, Empty(at, stage));
}

constexpr int kLate = 1;  // panels

// While panel `kPanel` of a tile is multiplied: the place of the panel kLate before gets its next one.
template <int kPanel>
__device__ __forceinline__ void Refill(const Parameters& parameters, const Place& at, Ring& freed, int rounds_left, bool first) {
  constexpr int kNext = kPanel - kLate + kStages;
  if (threadIdx.x != 0 || rounds_left <= kNext / kPanelsOfTile) return;
  if (kPanel < kLate && first) return;
  WaitForCluster(Empty(at, freed.stage), freed.parity);
  FetchPanel<kNext % kPanelsOfTile>(parameters, at, freed.stage);
  freed.Next();
}

struct Progress {
  Ring ring;   // of this warpgroup
  Ring freed;  // thread 0: the next place to be filled again
  int rounds_left;
  bool first;
};

// The products of layer I from its panel kPanel on: sums[4*j ..] are columns 8*j.. of this thread's two rows.
template <int I, int kPanel>
__device__ __forceinline__ void Multiply(Sums& sums, const Left& left, const Parameters& parameters, const Place& at,
                                         Progress& progress, uint32_t stage_before) {
  constexpr bool kOfInput = I == 0 || kPanel >= HiddenPanels(I);
  constexpr int p = kOfInput && I != 0 ? kPanel - HiddenPanels(I) : kPanel;
  constexpr int kColumns = kOfInput ? kInput : kLayers[I].hidden;
  constexpr int kSteps = CeilDiv(kColumns, 16) - 4 * p < 4 ? CeilDiv(kColumns, 16) - 4 * p : 4;
  const uint32_t stage = progress.ring.stage;
  const uint32_t weights = Anew(at.shared) + (kStreamed ? stage * kStageBytes : WeightsBefore(I) + kPanel * PanelBytes(I));
  if constexpr (kStreamed) Wait(Full(at, stage), progress.ring.parity);
  const uint64_t right = Descriptor(weights);
  const uint64_t rows = Descriptor(Anew(at.slot) + p * kXPanelBytes);
  Pin<kLayers[I].out>(sums);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if constexpr (kOfInput) {
      Product<kLayers[I].out>(sums.of, rows + 2 * k, right + 2 * k, kPanel != 0 || k != 0);
    } else {
      const uint32_t* const l = left.of + 4 * (4 * p + k);
      Product<kLayers[I].out>(sums.of, l[0], l[1], l[2], l[3], right + 2 * k, kPanel != 0 || k != 0);
    }
  }
  CommitProducts();
  if constexpr (kStreamed) {
    if constexpr (kPanel != 0) {
      AwaitProducts<1>();
      Release(at, stage_before);
    }
    Refill<PanelsBefore(I) + kPanel>(parameters, at, progress.freed, progress.rounds_left, progress.first);
    progress.ring.Next();
  }
  if constexpr (kPanel + 1 < Panels(I)) {
    Multiply<I, kPanel + 1>(sums, left, parameters, at, progress, stage);
  } else {
    AwaitProducts<0>();
    Pin<kLayers[I].out>(sums);
    if constexpr (kStreamed) Release(at, stage);
  }
}

__device__ __forceinline__ float SumOfQuad(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// In place, one pair of columns after another, so that it needs no registers.
template <int I>
__device__ __forceinline__ void AddBias(Sums& sums, const Place& at) {
  const uint32_t bias = Anew(at.shared) + kVectorsAt + 4 * VectorsBefore(I) + 8 * (at.thread % 4);
#pragma unroll
  for (int j = 0; j < kLayers[I].out / 8; ++j) {
    float* const s = sums.of + 4 * j;
    float low, high;
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high) : "r"(bias + 32 * j) : "memory");
    s[0] += low, s[1] += high, s[2] += low, s[3] += high;
  }
}

__device__ constexpr bool OnlyActivates(const Layer& layer) { return layer.norm == kNoNorm && !layer.residual; }

// Two neighbours of a row, as they leave the layer.
template <int I>
__device__ __forceinline__ uint32_t Leaving(float low, float high) {
  constexpr Layer kLayer = kLayers[I];
  const uint32_t packed = Pack(low, high);
  if constexpr (!OnlyActivates(kLayer) || kLayer.activation == kNoActivation) return packed;
  if constexpr (kLayer.activation == kRelu) return ReluOfBoth(packed);
  return Pack(Activate<kLayer.activation>(Low(packed)), Activate<kLayer.activation>(High(packed)));
}

// Of layers with a norm or with the chain's input once more: all that they do to the sums, in fp32.
template <int I>
__device__ __forceinline__ void Finish(Sums& sums, const Place& at) {
  constexpr Layer kLayer = kLayers[I];
  if constexpr (OnlyActivates(kLayer)) return;
  const int column = 2 * (at.thread % 4);
  const float* const bias = at.vectors + VectorsBefore(I);
  if constexpr (kLayer.activation != kNoActivation) {
#pragma unroll
    for (int i = 0; i < kLayer.out / 2; i += 2) {
      Round(sums.of[i], sums.of[i + 1]);
      sums.of[i] = Activate<kLayer.activation>(sums.of[i]);
      sums.of[i + 1] = Activate<kLayer.activation>(sums.of[i + 1]);
    }
  }
  if constexpr (kLayer.norm != kNoNorm) {
    float mean[2] = {0.f, 0.f}, squares[2] = {0.f, 0.f};
#pragma unroll
    for (int j = 0; j < kLayer.out / 8; ++j) {
      Round(sums.of[4 * j], sums.of[4 * j + 1]);
      Round(sums.of[4 * j + 2], sums.of[4 * j + 3]);
    }
    if constexpr (kLayer.norm == kLayerNorm) {
#pragma unroll
      for (int j = 0; j < kLayer.out / 8; ++j) {
        mean[0] += sums.of[4 * j] + sums.of[4 * j + 1];
        mean[1] += sums.of[4 * j + 2] + sums.of[4 * j + 3];
      }
      mean[0] = SumOfQuad(mean[0]) / kLayer.out;
      mean[1] = SumOfQuad(mean[1]) / kLayer.out;
    }
#pragma unroll
    for (int i = 0; i < kLayer.out / 2; ++i) {
      const float away = sums.of[i] - mean[i / 2 % 2];
      squares[i / 2 % 2] += away * away;
    }
    const float scale_of_row[2] = {rsqrtf(SumOfQuad(squares[0]) / kLayer.out + kLayer.epsilon),
                                   rsqrtf(SumOfQuad(squares[1]) / kLayer.out + kLayer.epsilon)};
    const float* const scale = bias + kLayer.out;
    const float* const shift = scale + kLayer.out;
#pragma unroll
    for (int j = 0; j < kLayer.out / 8; ++j) {
      const float2 by = *reinterpret_cast<const float2*>(scale + 8 * j + column);
      const float2 and_then = *reinterpret_cast<const float2*>(shift + 8 * j + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& s = sums.of[4 * j + i];
        s = (s - mean[i / 2]) * scale_of_row[i / 2] * (i % 2 ? by.y : by.x) + (i % 2 ? and_then.y : and_then.x);
      }
    }
  }
  if constexpr (kLayer.residual) {
    const uint32_t row = at.thread / 32 * 16 + at.thread % 32 / 4;
#pragma unroll
    for (int j = 0; j < kLayer.out / 8; ++j) {
      float* const s = sums.of + 4 * j;
      Round(s[0], s[1]);
      Round(s[2], s[3]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t r = row + 8 * half;
        const uint32_t from = at.slot + j / 8 * kXPanelBytes + r * kPanelRowBytes + ((j % 8 ^ r % 8) << 4) + 2 * column;
        uint32_t x;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from));
        s[2 * half] += Low(x);
        s[2 * half + 1] += High(x);
      }
    }
  }
}

template <int I>
__device__ __forceinline__ void ToLeft(const Sums& sums, Left& left) {
#pragma unroll
  for (int step = 0; step < kLayers[I].out / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) left.of[4 * step + i] = Leaving<I>(sums.of[8 * step + 2 * i], sums.of[8 * step + 2 * i + 1]);
  }
}

// The four threads that share a row give each other 16 bytes of it, so that each writes such a piece.
__device__ __forceinline__ void Store(const Sums& sums, const Parameters& parameters, const Place& at, int tile) {
  constexpr int kOut = kLayers[kNumLayers - 1].out;
  const int quad = at.thread % 4;
  const long long row = static_cast<long long>(tile) * kRows + at.thread / 32 * 16 + at.thread % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = row + 8 * half < parameters.rows;
    Element* const to = parameters.y + (row + 8 * half) * parameters.y_pitch;
#pragma unroll
    for (int j = 0; j < kOut / 8; j += 4) {
      // Piece j + q of the row goes to thread q; at[i] is what this thread has of piece j + i.
      uint32_t have[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        have[i] = j + i < kOut / 8 ? Leaving<kNumLayers - 1>(sums.of[4 * (j + i < kOut / 8 ? j + i : 0) + 2 * half],
                                          sums.of[4 * (j + i < kOut / 8 ? j + i : 0) + 2 * half + 1])
                                   : 0u;
      }
      // A transposition of 4 by 4 over the quad: first pairs two apart, then neighbours.
      const bool upper = quad & 2, odd = quad & 1;
      const uint32_t a = __shfl_xor_sync(0xffffffffu, upper ? have[0] : have[2], 2);
      const uint32_t b = __shfl_xor_sync(0xffffffffu, upper ? have[1] : have[3], 2);
      const uint32_t p0 = upper ? a : have[0], p1 = upper ? b : have[1];
      const uint32_t p2 = upper ? have[2] : a, p3 = upper ? have[3] : b;
      // p0, p1: of threads 0 and 1 (the lower pair's), p2, p3: of threads 2 and 3, for pieces 2*(quad/2) and the next.
      const uint32_t c = __shfl_xor_sync(0xffffffffu, odd ? p0 : p1, 1);
      const uint32_t d = __shfl_xor_sync(0xffffffffu, odd ? p2 : p3, 1);
      const uint32_t q0 = odd ? c : p0, q1 = odd ? p1 : c, q2 = odd ? d : p2, q3 = odd ? p3 : d;
      if (inside && j + quad < kOut / 8) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + 8 * (j + quad)), "r"(q0), "r"(q1), "r"(q2), "r"(q3)
                     : "memory");
      }
    }
  }
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

template <int I>
__device__ __forceinline__ void RunFrom(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress,
                                        int warpgroup, int tile, int next_tile, int tiles) {
  Multiply<I, 0>(sums, left, parameters, at, progress, 0);
  AddBias<I>(sums, at);
  Finish<I>(sums, at);
  if constexpr (I == LastUseOfInput()) {
    // Whoever reads the slot by plain loads must be done; products are.
    if constexpr (kLayers[I].residual) AwaitWarpgroup(warpgroup);
    if (at.thread == 0 && next_tile < tiles) FetchRows(parameters, at, RowsHere(at, warpgroup), next_tile);
  }
  if constexpr (I + 1 < kNumLayers) {
    ToLeft<I>(sums, left);
    PinLeft<kLayers[I].out>(left);
    RunFrom<I + 1>(sums, left, parameters, at, progress, warpgroup, tile, next_tile, tiles);
  } else {
    if (tile < tiles) Store(sums, parameters, at, tile);
  }
}

// All that fits: the whole chain's weights, or the ring full.
template <int kPanel>
__device__ __forceinline__ void FetchFirst(const Parameters& parameters, const Place& at) {
  constexpr int I = LayerOf(kPanel);
  if constexpr (kStreamed) {
    FetchPanel<kPanel>(parameters, at, kPanel);
  } else {
    constexpr int kOfLayer = kPanel - PanelsBefore(I);
    CopyBox(at.shared + WeightsBefore(I) + kOfLayer * PanelBytes(I), parameters.weights[I], ColumnOf(I, kOfLayer), 0, Full(at, 0));
  }
  if constexpr (kPanel + 1 < (kStreamed ? kStages : kPanelsOfTile)) FetchFirst<kPanel + 1>(parameters, at);
}

template <int I>
__device__ __forceinline__ void LoadVectors(const Parameters& parameters, float* vectors) {
  constexpr Layer kLayer = kLayers[I];
  float* const to = vectors + VectorsBefore(I);
  for (int i = threadIdx.x; i < kLayer.out; i += blockDim.x) {
    to[i] = parameters.bias[I] ? Value(parameters.bias[I] + i) : 0.f;
    if constexpr (kLayer.norm != kNoNorm) {
      to[kLayer.out + i] = parameters.scale[I] ? Value(parameters.scale[I] + i) : 1.f;
      to[2 * kLayer.out + i] = parameters.shift[I] ? Value(parameters.shift[I] + i) : 0.f;
    }
  }
  if constexpr (I + 1 < kNumLayers) LoadVectors<I + 1>(parameters, vectors);
}

}  // namespace tally_pipeline

extern "C" __global__ void TALLY_CLUSTER __launch_bounds__(tally_pipeline::kComputeThreads, 1)
    tally_vertical(const __grid_constant__ tally_pipeline::Parameters parameters) {
  using namespace tally_pipeline;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  float* const vectors = reinterpret_cast<float*>(shared + kVectorsAt);
  const Place at{Shared(shared), Shared(shared) + kSlotsAt + warpgroup * kSlotBytes, threadIdx.x % kWarpgroupThreads, vectors};
  const int tiles = (parameters.rows + kRows - 1) / kRows;
  const int stride = gridDim.x * kWarpgroups;
  int tile = blockIdx.x * kWarpgroups + warpgroup;

  if (threadIdx.x < kNumLayers) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&parameters.weights[threadIdx.x]) : "memory");
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(Full(at, stage), 1);
      InitBarrier(Empty(at, stage), kWarpgroups * kCluster);
    }
    for (int w = 0; w < kWarpgroups; ++w) InitBarrier(RowsHere(at, w), 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  if constexpr (kCluster > 1) AwaitCluster();
  __syncthreads();
  if (at.thread == 0 && tile < tiles) FetchRows(parameters, at, RowsHere(at, warpgroup), tile);
  if (threadIdx.x == 0) {
    if constexpr (!kStreamed) ExpectBytes(Full(at, 0), kWeightBytes);
    FetchFirst<0>(parameters, at);
  }
  LoadVectors<0>(parameters, vectors);
  __syncthreads();
  if constexpr (!kStreamed) Wait(Full(at, 0), 0);

  Sums sums;
  Left left;
  Progress progress{{}, {}, (tiles + stride - 1) / stride, true};
  uint32_t parity = 0;
#pragma unroll 1
  for (; progress.rounds_left > 0; --progress.rounds_left, tile += stride) {
    if (!kStreamed && tile >= tiles) break;
    if (tile < tiles) Wait(RowsHere(at, warpgroup), parity);
    parity ^= 1;
    RunFrom<0>(sums, left, parameters, at, progress, warpgroup, tile, tile + stride, tiles);
    progress.first = false;
  }
  if constexpr (kCluster > 1) AwaitCluster();  // nobody leaves while others may still send to it
}
