// What all forms of the vertical kernel share: shapes, and what a layer does behind its products.
//
// Compiled by NVRTC behind a prologue that pipelines/stages/source.cc writes: the types, macros and the table of layers
// used below. In front of a form stands what it is made of: hopper.cuh (resident.cuh, streamed.cuh), or mma.cuh alone.
//
//   registers   the products of a layer (fp32) become, with bias, activation and norm, the left operand of the next
//   shared      rows of the chain's input, one slot a warpgroup; weights: all of them, or a ring of panels
//   a panel     64 columns of the weights of a layer, rows of 128 bytes, in the layout of 128-byte swizzling
//
// Of a training's chain, what leaves each layer but the last goes to memory, too. A backward pass is the same kernel over
// gradients, layers in reverse. It multiplies with the weights as they lie, so its panels are 64 rows of them, in boxes of
// 64 columns: right operands of which the columns lie beside each other (`kTransposed`).
//
// The left operand of a product has, in registers, the same layout as its result: row 16*warp + lane/4 (and 8 further
// down), columns 8*j + 2*(lane%4) and the next. So nothing moves between threads from layer to layer.

namespace tally_pipeline {

constexpr int kRows = 64;  // of a tile: what one wgmma takes, or four warps' mma
constexpr int kPanelColumns = 64;
constexpr int kPanelRowBytes = 128;
constexpr int kWarpgroupThreads = 128;
constexpr int kComputeThreads = kWarpgroups * kWarpgroupThreads;
constexpr uint32_t kXPanelBytes = kRows * kPanelRowBytes;

__device__ constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }
__device__ constexpr int Least(int a, int b) { return a < b ? a : b; }
__device__ constexpr int Most(int a, int b) { return a > b ? a : b; }
constexpr int kNumLayers = sizeof(kLayers) / sizeof(kLayers[0]);
// A first layer too wide for a thread's registers is computed in chunks, each of which the second layer takes at once.
constexpr bool kIsWide = kLayers[0].out > 256;
__device__ constexpr int MostOut() {
  int most = 0;
  for (int i = kIsWide ? 1 : 0; i < kNumLayers; ++i) most = kLayers[i].out > most ? kLayers[i].out : most;
  return most;
}
constexpr int kChunks = kLayers[0].out / kPanelColumns;
constexpr int kFirstNarrow = kIsWide ? 2 : 0;  // the first layer that is computed by itself
constexpr int kInput = kLayers[0].hidden;  // columns of the chain's input
constexpr int kXPanels = CeilDiv(kInput, kPanelColumns);
constexpr uint32_t kSlotBytes = kXPanels * kXPanelBytes;
// Panels of a layer: those that meet the hidden values, then those that meet the chain's input once more.
__device__ constexpr int HiddenPanels(int i) { return CeilDiv(kLayers[i].hidden, kPanelColumns); }
__device__ constexpr int Panels(int i) { return HiddenPanels(i) + (kLayers[i].takes_input ? kXPanels : 0); }
// A streamed layer is computed in two halves of its columns, the first of them whole panels of the next layer's; a wide
// one in chunks.
__device__ constexpr int First(int i) {
  if (i == 0 && kIsWide) return kPanelColumns;
  return kLayers[i].out <= kPanelColumns ? kLayers[i].out : CeilDiv(kLayers[i].out, 2 * kPanelColumns) * kPanelColumns;
}
__device__ constexpr int Halves(int i) { return First(i) < kLayers[i].out ? 2 : 1; }
// Columns of the layer that a panel is for; boxes are whole.
__device__ constexpr int PanelWidth(int i) {
  const int width = kStreamed ? First(i) : kLayers[i].out;
  return kTransposed ? CeilDiv(width, kPanelColumns) * kPanelColumns : width;
}
__device__ constexpr uint32_t PanelBytes(int i) { return PanelWidth(i) * kPanelRowBytes; }
__device__ constexpr uint32_t MostPanelBytes() {
  uint32_t most = 0;
  for (int i = 0; i < kNumLayers; ++i) most = PanelBytes(i) > most ? PanelBytes(i) : most;
  return most;
}
__device__ constexpr uint32_t WeightsBefore(int i) {
  uint32_t bytes = 0;
  for (int j = 0; j < i; ++j) bytes += Panels(j) * PanelBytes(j);
  return bytes;
}
// A backward pass has no bias.
__device__ constexpr int VectorsOf(int i) { return kTransposed ? 0 : kLayers[i].out * (kLayers[i].norm == kNoNorm ? 1 : 3); }
__device__ constexpr int VectorsBefore(int i) {
  int floats = 0;
  for (int j = 0; j < i; ++j) floats += VectorsOf(j);
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
// The same instructions do for both.
__device__ constexpr bool AreAlike(const Layer& a, const Layer& b) {
  return a.hidden == b.hidden && a.out == b.out && a.activation == b.activation && a.norm == b.norm && a.epsilon == b.epsilon &&
         a.saves == b.saves && a.mask == b.mask && !a.takes_input && !b.takes_input && !a.residual && !b.residual;
}
constexpr uint32_t kStageBytes = MostPanelBytes();
constexpr uint32_t kWeightBytes = kStreamed ? kStages * kStageBytes : WeightsBefore(kNumLayers);

// Shared memory: weights, slots, vectors (bias, scale, shift of each layer, fp32), barriers.
constexpr uint32_t kSlotsAt = kWeightBytes;
constexpr uint32_t kVectorsAt = kSlotsAt + kWarpgroups * kSlotBytes;
constexpr uint32_t kBarriersAt = kVectorsAt + ((VectorsBefore(kNumLayers) * 4 + 15) & ~15);
constexpr uint32_t kSharedBytes = kBarriersAt + 8 * (2 * kStages + kWarpgroups);

struct Parameters {
  Matrix x;
  Matrix weights[kNumLayers];
  const Element* bias[kNumLayers];   // null: none
  const Element* scale[kNumLayers];  // of the norm
  const Element* shift[kNumLayers];
  Element* saved[kNumLayers];  // [rows][out]: what leaves a layer that saves
  uint32_t* masks[kNumLayers];  // of layers that write or apply one; MaskAt
  Element* y;
  long long y_pitch;  // elements
  int rows;
};

// Of one thread: the products of a layer, and the left operand of the next.
struct Sums {
  float of[MostOut() / 2];
  uint32_t mask[CeilDiv(MostOut(), kPanelColumns)];  // of a layer that applies one
};
struct Left {
  uint32_t of[MostOut() / 4];
};

__device__ __forceinline__ uint32_t Shared(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
// The same address, computed again: else the compiler keeps what follows from it, for each product of all layers, in
// registers from tile to tile, and there are none to spare.
__device__ __forceinline__ uint32_t Anew(uint32_t address) {
  asm volatile("" : "+r"(address));
  return address;
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

// x / (1 + e^-u), off by a few units of the last place of fp32. An exact division would cost more than the products.
__device__ __forceinline__ float TimesLogistic(float x, float u) { return __fdividef(x, 1.f + __expf(-u)); }

template <int kActivation>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (kActivation == kRelu) return x < 0.f ? 0.f : x;  // a NaN passes
  if constexpr (kActivation == kGelu) return 0.5f * x * (1.f + erff(x * 0.70710678f));
  // (1 + tanh(u)) / 2 is the logistic function of 2 u.
  if constexpr (kActivation == kGeluTanh) return TimesLogistic(x, 1.5957691f * (x + 0.044715f * x * x * x));
  if constexpr (kActivation == kSilu) return TimesLogistic(x, x);
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

// --- behind the products ---------------------------------------------------------------------------------------------

struct Place {
  uint32_t shared;   // start of the dynamic shared memory
  uint32_t slot;     // of this warpgroup
  uint32_t thread;   // in the warpgroup
  float* vectors;
};
// Of this thread, in the block's dynamic shared memory.
__device__ __forceinline__ Place PlaceIn(unsigned char* shared) {
  return {Shared(shared), Shared(shared) + kSlotsAt + threadIdx.x / kWarpgroupThreads * kSlotBytes,
          threadIdx.x % kWarpgroupThreads, reinterpret_cast<float*>(shared + kVectorsAt)};
}
__device__ __forceinline__ int TilesOf(const Parameters& parameters) { return (parameters.rows + kRows - 1) / kRows; }

__device__ __forceinline__ float SumOfQuad(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// To kColumns columns, those of a layer's bias that are behind `before` floats. In place, one pair of columns after
// another, so that it needs no registers.
template <int kColumns>
__device__ __forceinline__ void AddBias(float* sums, const Place& at, int before) {
  if constexpr (kTransposed) return;
  const uint32_t bias = Anew(at.shared) + kVectorsAt + 4 * before + 8 * (at.thread % 4);
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    float* const s = sums + 4 * j;
    float low, high;
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high) : "r"(bias + 32 * j) : "memory");
    s[0] += low, s[1] += high, s[2] += low, s[3] += high;
  }
}

__device__ constexpr bool OnlyActivates(const Layer& layer) { return layer.norm == kNoNorm && !layer.residual; }

// A mask has a bit for each value, 0 where a gradient ends: where ReLU gave 0. Of each tile and 64 columns, a word for
// each thread: bit i is the lower one of what is its Left, number i, and bit 16 + i the other one.
__device__ __forceinline__ uint32_t* MaskAt(const Parameters& parameters, const Place& at, int layer, int out, int tile) {
  return parameters.masks[layer] + static_cast<long long>(tile) * CeilDiv(out, kPanelColumns) * kWarpgroupThreads + at.thread;
}
template <int I>
__device__ __forceinline__ void LoadMask(Sums& sums, const Parameters& parameters, const Place& at, int layer, int tile) {
  if constexpr (kLayers[I].mask != kAppliesMask) return;
  const uint32_t* const from = MaskAt(parameters, at, layer, kLayers[I].out, tile);
#pragma unroll
  for (int w = 0; w < CeilDiv(kLayers[I].out, kPanelColumns); ++w) {
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(sums.mask[w]) : "l"(from + w * kWarpgroupThreads));
  }
}
// Bits 15 and 31, of the halves that are not 0. A NaN is not.
__device__ __forceinline__ uint32_t BothNotZero(uint32_t packed) {
  return ((packed & 0x7fff7fffu) + 0x7fff7fffu) & 0x80008000u;
}

// Two neighbours of a row, number i of a thread's, as they leave the layer.
template <int I>
__device__ __forceinline__ uint32_t Leaving(float low, float high, const uint32_t* mask, int i) {
  constexpr Layer kLayer = kLayers[I];
  const uint32_t packed = Pack(low, high);
  if constexpr (kLayer.mask == kAppliesMask) return packed & (mask[i / 16] >> i % 16 & 0x00010001u) * 0xffffu;
  if constexpr (!OnlyActivates(kLayer) || kLayer.activation == kNoActivation) return packed;
  if constexpr (kLayer.activation == kRelu) return ReluOfBoth(packed);
  return Pack(Activate<kLayer.activation>(Low(packed)), Activate<kLayer.activation>(High(packed)));
}

// Of layers with a norm or with the chain's input once more: all that they do to the sums, in fp32.
template <int I>
__device__ __forceinline__ void Finish(Sums& sums, const Place& at, int before) {
  constexpr Layer kLayer = kLayers[I];
  if constexpr (OnlyActivates(kLayer)) return;
  const int column = 2 * (at.thread % 4);
  const float* const bias = at.vectors + before;
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

template <int I, int kColumns>
__device__ __forceinline__ void ToLeft(const float* sums, uint32_t* left, const uint32_t* mask) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) left[i] = Leaving<I>(sums[2 * i], sums[2 * i + 1], mask, i);
}

// Columns kFrom to kTo of a tile, of which a thread has packed(i): two neighbours, as in Left. The four threads that share
// a row give each other 16 bytes of it, so that each writes such a piece.
template <int kFrom, int kTo, typename Packed>
__device__ __forceinline__ void StoreTile(Element* matrix, long long pitch, const Parameters& parameters, const Place& at, int tile,
                                          Packed packed) {
  const int quad = at.thread % 4;
  const long long row = static_cast<long long>(tile) * kRows + at.thread / 32 * 16 + at.thread % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = row + 8 * half < parameters.rows;
    Element* const to = matrix + (row + 8 * half) * pitch;
#pragma unroll
    for (int j = kFrom / 8; j < kTo / 8; j += 4) {
      // Piece j + q of the row goes to thread q; at[i] is what this thread has of piece j + i.
      uint32_t have[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        have[i] = j + i < kTo / 8 ? packed(2 * (j + i < kTo / 8 ? j + i : j) + half) : 0u;
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
      if (inside && j + quad < kTo / 8) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + 8 * (j + quad)), "r"(q0), "r"(q1), "r"(q2), "r"(q3)
                     : "memory");
      }
    }
  }
}

// Of the last layer.
template <int kFrom, int kTo>
__device__ __forceinline__ void Store(const Sums& sums, const Parameters& parameters, const Place& at, int tile) {
  StoreTile<kFrom, kTo>(parameters.y, parameters.y_pitch, parameters, at, tile, [&](int i) {
    return Leaving<kNumLayers - 1>(sums.of[2 * i], sums.of[2 * i + 1], sums.mask, i);
  });
}
// What leaves another one, `layer`, which is alike to I: for the backward pass.
template <int I, int kFrom, int kTo>
__device__ __forceinline__ void Save(const Left& left, const Parameters& parameters, const Place& at, int layer, int tile) {
  constexpr Layer kLayer = kLayers[I];
  if constexpr (kLayer.saves) {
    StoreTile<kFrom, kTo>(parameters.saved[layer], kLayer.out, parameters, at, tile, [&](int i) { return left.of[i]; });
  }
  if constexpr (kLayer.mask == kWritesMask) {
    uint32_t* const to = MaskAt(parameters, at, layer, kLayer.out, tile);
#pragma unroll
    for (int w = kFrom / kPanelColumns; w < CeilDiv(kTo, kPanelColumns); ++w) {
      uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (16 * w + i < kTo / 4) word |= BothNotZero(left.of[16 * w + i]) >> (15 - i);
      }
      to[w * kWarpgroupThreads] = word;
    }
  }
}

template <int I>
__device__ __forceinline__ void LoadVectors(const Parameters& parameters, float* vectors) {
  if constexpr (kTransposed) return;
  constexpr Layer kLayer = kLayers[I];
  float* const to = vectors + VectorsBefore(I);
  for (int i = threadIdx.x; i < kLayer.out; i += kComputeThreads) {
    to[i] = parameters.bias[I] ? Value(parameters.bias[I] + i) : 0.f;
    if constexpr (kLayer.norm != kNoNorm) {
      to[kLayer.out + i] = parameters.scale[I] ? Value(parameters.scale[I] + i) : 1.f;
      to[2 * kLayer.out + i] = parameters.shift[I] ? Value(parameters.shift[I] + i) : 0.f;
    }
  }
  if constexpr (I + 1 < kNumLayers) LoadVectors<I + 1>(parameters, vectors);
}

}  // namespace tally_pipeline
