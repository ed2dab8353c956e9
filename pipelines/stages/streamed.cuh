// The vertical kernel, streamed: a warpgroup takes 64 rows through all layers; weights pass through a ring of panels.
//
// A layer is computed in two halves of its columns, so that the matrix unit always has products to do:
//
//     products     first half, from what the last layer's first half gave | the rest of it | second half ...
//     meanwhile    bias and activation of the last layer's second half    |                | ... of this first half
//
// One warpgroup more than compute: a thread of it fills the ring, and gives its registers to the others. All warpgroups
// go through the same number of tiles, some perhaps empty.
//
// Layers that are alike share their instructions: a pass over a long chain must not wait for the instruction cache.

namespace tally_pipeline {

constexpr int kThreads = kComputeThreads + kWarpgroupThreads;
constexpr int kInFlight = 1;  // panels that are multiplied while the next one is awaited

// Bias and activation of its second half happen during the next layer's first products.
__device__ constexpr bool IsPending(int i) {
  return i >= (kIsWide ? 1 : 0) && i + 1 < kNumLayers && Halves(i) == 2 && OnlyActivates(kLayers[i]) && First(i + 1) <= First(i);
}
// Panels of its first half that are multiplied while the second half of the layer before is finished.
__device__ constexpr int Early(int i) { return IsPending(i - 1) ? First(i - 1) / kPanelColumns : 0; }
// Layers i to EndOfRun(i) - 1 are computed by the same instructions, which begin the next layer, too.
__device__ constexpr int EndOfRun(int i) {
  int end = i + 1;
  if (i == 0 || IsPending(i - 1) != IsPending(i)) return end;
  while (end + 1 < kNumLayers && AreAlike(kLayers[i], kLayers[end]) && IsPending(end) == IsPending(i) &&
         First(end + 1) == First(i + 1) && Early(end + 1) == Early(i + 1)) {
    ++end;
  }
  return end;
}

struct Ring {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void Next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// --- filling the ring ------------------------------------------------------------------------------------------------

// The panel of a layer like I that meets columns `k` on of the left operand, for columns `column` on of the layer, into the
// next place. What is outside of the weights is read as zero.
template <int I>
__device__ __forceinline__ void FetchPanel(const Matrix& weights, const Place& at, Ring& ring, int k, int column) {
  const uint32_t barrier = Full(at, ring.stage);
  Wait(Empty(at, ring.stage), ring.parity ^ 1);
  ExpectBytes(barrier, PanelBytes(I));
  CopyPanel<PanelWidth(I)>(at.shared + ring.stage * kStageBytes, weights, k, column, barrier);
  ring.Next();
}

// The panels of layer I, in the order in which they are multiplied.
template <int I>
__device__ __forceinline__ void FetchFrom(const Parameters& parameters, const Place& at, Ring& ring) {
  constexpr Layer kLayer = kLayers[I];
  constexpr int kEnd = EndOfRun(I);
#pragma unroll 1
  for (int layer = I; layer < kEnd; ++layer) {
#pragma unroll 1
    for (int half = 0; half < Halves(I); ++half) {
#pragma unroll 1
      for (int panel = 0; panel < Panels(I); ++panel) {
        const int k = I == 0 || panel < HiddenPanels(I) ? kLayer.hidden_at + panel * kPanelColumns
                                                             : kLayer.input_at + (panel - HiddenPanels(I)) * kPanelColumns;
        FetchPanel<I>(parameters.weights[layer], at, ring, k, half * First(I));
      }
    }
  }
  if constexpr (kEnd < kNumLayers) FetchFrom<kEnd>(parameters, at, ring);
}

// --- a layer ---------------------------------------------------------------------------------------------------------

// Of a warpgroup.
struct Progress {
  Ring next;           // the panel to be multiplied next
  uint32_t oldest = 0;  // the place of the oldest panel in flight
  int in_flight = 0;
  int warpgroup, tile, next_tile, tiles;
};

// Waits until kLeave panels are in flight at most; the places of the others may be filled again.
template <int kLeave>
__device__ __forceinline__ void Retire(const Place& at, Progress& progress) {
  AwaitProducts<kLeave>();
#pragma unroll 1
  while (progress.in_flight > kLeave) {
    if (at.thread == 0) Arrive(Empty(at, progress.oldest));
    if (++progress.oldest == kStages) progress.oldest = 0;
    --progress.in_flight;
  }
}

// The next panel, of kOut rows, times kSteps times 16 columns of `left`, or of panel number `of_input` of the slot.
template <int kOut, int kSteps, bool kOfInput>
__device__ __forceinline__ void MultiplyPanel(float* sums, const uint32_t* left, int of_input, bool is_first, const Place& at,
                                              Progress& progress) {
  const uint64_t right = RightDescriptor(Anew(at.shared) + progress.next.stage * kStageBytes);
  const uint64_t rows = Descriptor(Anew(at.slot) + of_input * kXPanelBytes);
  Wait(Full(at, progress.next.stage), progress.next.parity);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if constexpr (kOfInput) {
      Product<kOut>(sums, rows + kLeftStep * k, right + kRightStep * k, !is_first || k != 0);
    } else {
      const uint32_t* const l = left + 4 * k;
      Product<kOut>(sums, l[0], l[1], l[2], l[3], right + kRightStep * k, !is_first || k != 0);
    }
  }
  CommitProducts();
  progress.next.Next();
  ++progress.in_flight;
  Retire<kInFlight>(at, progress);
}

// Multiplies panels kPanel to kEnd - 1 of a half: sums[4*j ..] are columns 8*j.. of this thread's two rows.
template <int I, int kHalf, int kPanel, int kEnd>
__device__ __forceinline__ void Multiply(Sums& sums, const Left& left, const Place& at, Progress& progress) {
  if constexpr (kPanel < kEnd) {
    constexpr bool kOfInput = I == 0 || kPanel >= HiddenPanels(I);
    constexpr int p = kOfInput && I != 0 ? kPanel - HiddenPanels(I) : kPanel;
    constexpr int kSteps = Least(CeilDiv(kOfInput ? kInput : kLayers[I].hidden, 16) - 4 * p, 4);
    constexpr int kOut = kHalf == 0 ? First(I) : kLayers[I].out - First(I);
    MultiplyPanel<kOut, kSteps, kOfInput>(sums.of + kHalf * First(I) / 2, left.of + (kOfInput ? 0 : 16 * p), p, kPanel == 0, at,
                                          progress);
    Multiply<I, kHalf, kPanel + 1, kEnd>(sums, left, at, progress);
  }
}

// All products of layer I are done.
template <int I>
__device__ __forceinline__ void AfterProducts(const Parameters& parameters, const Place& at, const Progress& progress, int layer) {
  if constexpr (I <= LastUseOfInput()) {
    // Whoever reads the slot by plain loads must be done.
    if constexpr (kLayers[I].residual) AwaitWarpgroup(progress.warpgroup);
    if (at.thread == 0 && layer == LastUseOfInput() && progress.next_tile < progress.tiles) {
      FetchRows(parameters, at, RowsHere(at, progress.warpgroup), progress.next_tile);
    }
  }
}

// What layer I does to columns kFrom to kTo of its products, which are done.
template <int I, int kFrom, int kTo>
__device__ __forceinline__ void Leave(Sums& sums, Left& left, const Parameters& parameters, const Place& at,
                                      const Progress& progress, int layer, int before) {
  Pin<(kTo - kFrom) / 2>(sums.of + kFrom / 2);
  AddBias<kTo - kFrom>(sums.of + kFrom / 2, at, before + kFrom);
  if constexpr (I + 1 < kNumLayers) {
    ToLeft<I, kTo - kFrom>(sums.of + kFrom / 2, left.of + kFrom / 4, sums.mask + kFrom / kPanelColumns);
    Pin<(kTo - kFrom) / 4>(left.of + kFrom / 4);
    if (progress.tile < progress.tiles) Save<I, kFrom, kTo>(left, parameters, at, layer, progress.tile);
  } else {
    if (progress.tile < progress.tiles) Store<kFrom, kTo>(sums, parameters, at, progress.tile);
  }
}

// Behind layer I's products, of which kOthers panels may go on while the first half becomes the next left operand.
template <int I, int kOthers>
__device__ __forceinline__ void End(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress,
                                    int layer, int before) {
  constexpr Layer kLayer = kLayers[I];
  if constexpr (OnlyActivates(kLayer) && Halves(I) == 2) {
    Retire<Least(kOthers, kInFlight)>(at, progress);
    Leave<I, 0, First(I)>(sums, left, parameters, at, progress, layer, before);
    if constexpr (IsPending(I)) {
      Multiply<I + 1, 0, 0, Early(I + 1)>(sums, left, at, progress);
      Retire<Least(Early(I + 1), kInFlight)>(at, progress);
    } else {
      Retire<0>(at, progress);
    }
    AfterProducts<I>(parameters, at, progress, layer);
    Leave<I, First(I), kLayer.out>(sums, left, parameters, at, progress, layer, before);
  } else {
    Retire<0>(at, progress);
    Pin<kLayer.out / 2>(sums.of);
    AddBias<kLayer.out>(sums.of, at, before);
    Finish<I>(sums, at, before);
    AfterProducts<I>(parameters, at, progress, layer);
    if constexpr (I + 1 < kNumLayers) {
      ToLeft<I, kLayer.out>(sums.of, left.of, sums.mask);
      Pin<kLayer.out / 4>(left.of);
      if (progress.tile < progress.tiles) Save<I, 0, kLayer.out>(left, parameters, at, layer, progress.tile);
    } else {
      if (progress.tile < progress.tiles) Store<0, kLayer.out>(sums, parameters, at, progress.tile);
    }
  }
}

// `layer` is alike to I; its vectors are behind `before` floats. Its early products are begun.
template <int I>
__device__ __forceinline__ void Run(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress,
                                    int layer, int before) {
  constexpr int kAll = Panels(I);
  if (progress.tile < progress.tiles) LoadMask<I>(sums, parameters, at, layer, progress.tile);
  Multiply<I, 0, Early(I), kAll>(sums, left, at, progress);
  if constexpr (Halves(I) == 2) Multiply<I, 1, 0, kAll>(sums, left, at, progress);
  // Not those that read what the first half overwrites.
  constexpr int kOthers = I + 1 == kNumLayers ? kAll : kAll - Least(kAll, I == 0 ? 0 : First(I) / kPanelColumns);
  End<I, kOthers>(sums, left, parameters, at, progress, layer, before);
}

// --- a wide first layer ----------------------------------------------------------------------------------------------

// Its chunks of 64 columns, and of the second layer's weights what meets them:
//
//     chunk 0 | chunk 1, second layer with 0 | chunk 2, second layer with 1 | ... | second layer with the last
//
// Bias and activation of a chunk happen while the second layer's first half is multiplied with the chunk before.
struct Chunk {
  float sums[kPanelColumns / 2];
  uint32_t left[2][kPanelColumns / 4];  // of an even one, of an odd one
};

// kSecond: 1; a shorter chain has none.
template <int kSecond>
__device__ __forceinline__ void FetchWide(const Parameters& parameters, const Place& at, Ring& ring) {
#pragma unroll 1
  for (int chunk = 0; chunk <= kChunks; ++chunk) {
    if (chunk < kChunks) {
#pragma unroll 1
      for (int panel = 0; panel < kXPanels; ++panel) {
        FetchPanel<0>(parameters.weights[0], at, ring, panel * kPanelColumns, chunk * kPanelColumns);
      }
    }
    if (chunk > 0) {
#pragma unroll 1
      for (int half = 0; half < Halves(kSecond); ++half) {
        FetchPanel<kSecond>(parameters.weights[kSecond], at, ring, (chunk - 1) * kPanelColumns, half * First(kSecond));
      }
    }
  }
}

template <int kPanel>
__device__ __forceinline__ void MultiplyChunk(Chunk& chunk, const Place& at, Progress& progress) {
  MultiplyPanel<kPanelColumns, Least(CeilDiv(kInput, 16) - 4 * kPanel, 4), true>(chunk.sums, nullptr, kPanel, kPanel == 0, at, progress);
  if constexpr (kPanel + 1 < kXPanels) MultiplyChunk<kPanel + 1>(chunk, at, progress);
}

template <int kOdd>
__device__ __forceinline__ void FinishChunk(Chunk& chunk, const Place& at, int number) {
  Pin<kPanelColumns / 2>(chunk.sums);
  AddBias<kPanelColumns>(chunk.sums, at, number * kPanelColumns);
  ToLeft<0, kPanelColumns>(chunk.sums, chunk.left[kOdd], nullptr);
  Pin<kPanelColumns / 4>(chunk.left[kOdd]);
}

// The second layer with chunk `number`, while the one behind it is computed.
template <int kSecond, int kOdd, bool kIsLast>
__device__ __forceinline__ void TakeChunk(Sums& sums, Chunk& chunk, const Place& at, Progress& progress, int number) {
  if constexpr (!kIsLast) MultiplyChunk<0>(chunk, at, progress);
  MultiplyPanel<First(kSecond), 4, false>(sums.of, chunk.left[kOdd], 0, false, at, progress);
  if constexpr (!kIsLast) FinishChunk<1 - kOdd>(chunk, at, number + 1);
  if constexpr (Halves(kSecond) == 2) {
    MultiplyPanel<kLayers[kSecond].out - First(kSecond), 4, false>(sums.of + First(kSecond) / 2, chunk.left[kOdd], 0, false, at, progress);
  }
}

template <int kSecond>
__device__ __forceinline__ void RunWide(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress) {
  static_assert(!kIsWide || kChunks % 2 == 0);
  Chunk chunk;
  MultiplyChunk<0>(chunk, at, progress);
  Retire<0>(at, progress);
  FinishChunk<0>(chunk, at, 0);
#pragma unroll
  for (int i = 0; i < kLayers[kSecond].out / 2; ++i) sums.of[i] = 0.f;
  Pin<kLayers[kSecond].out / 2>(sums.of);
#pragma unroll 1
  for (int number = 0; number + 2 < kChunks; number += 2) {
    TakeChunk<kSecond, 0, false>(sums, chunk, at, progress, number);
    TakeChunk<kSecond, 1, false>(sums, chunk, at, progress, number + 1);
  }
  TakeChunk<kSecond, 0, false>(sums, chunk, at, progress, kChunks - 2);
  AfterProducts<0>(parameters, at, progress, 0);
  TakeChunk<kSecond, 1, true>(sums, chunk, at, progress, kChunks - 1);
  End<kSecond, Halves(kSecond) == 2 ? 1 : 0>(sums, left, parameters, at, progress, kSecond, VectorsBefore(kSecond));
}

template <int I>
__device__ __forceinline__ void RunFrom(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress) {
  constexpr int kEnd = EndOfRun(I);
#pragma unroll 1
  for (int layer = I; layer < kEnd; ++layer) {
    Run<I>(sums, left, parameters, at, progress, layer, VectorsBefore(I) + (layer - I) * VectorsOf(I));
  }
  if constexpr (kEnd < kNumLayers) RunFrom<kEnd>(sums, left, parameters, at, progress);
}

// Registers: the warpgroup that fills the ring needs few.
__device__ __forceinline__ void TakeRegisters() {
  if constexpr (kWarpgroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  if constexpr (kWarpgroups == 3) asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
}
__device__ __forceinline__ void GiveRegisters() {
  if constexpr (kWarpgroups > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}

}  // namespace tally_pipeline

extern "C" __global__ void __launch_bounds__(tally_pipeline::kThreads, 1)
    tally_any_grid_vertical(const __grid_constant__ tally_pipeline::Parameters parameters) {
  using namespace tally_pipeline;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  const Place at = PlaceIn(shared);
  const int tiles = TilesOf(parameters);
  const int stride = gridDim.x * kWarpgroups;
  const int rounds = (tiles + stride - 1) / stride;
  if (blockIdx.x * kWarpgroups >= tiles) return;

  PrefetchMaps(parameters);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(Full(at, stage), 1);
      InitBarrier(Empty(at, stage), kWarpgroups);
    }
    for (int w = 0; w < kWarpgroups; ++w) InitBarrier(RowsHere(at, w), 1);
    PublishBarriers();
  }
  __syncthreads();

  if (warpgroup == kWarpgroups) {
    GiveRegisters();
    if (at.thread == 0) {
      Ring ring;
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
        if constexpr (kIsWide) FetchWide<1>(parameters, at, ring);
        if constexpr (kFirstNarrow < kNumLayers) FetchFrom<kFirstNarrow>(parameters, at, ring);
      }
    }
  } else {
    TakeRegisters();
    Sums sums;
    Left left;
    Progress progress;
    progress.warpgroup = warpgroup;
    progress.tiles = tiles;
    progress.tile = blockIdx.x * kWarpgroups + warpgroup;
    if (at.thread == 0 && progress.tile < tiles) FetchRows(parameters, at, RowsHere(at, warpgroup), progress.tile);
    LoadVectors<0>(parameters, at.vectors);
    asm volatile("bar.sync 15, %0;" ::"n"(kComputeThreads) : "memory");
    uint32_t parity = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round, progress.tile += stride, parity ^= 1) {
      progress.next_tile = progress.tile + stride;
      if (progress.tile < tiles) Wait(RowsHere(at, warpgroup), parity);
      if constexpr (kIsWide) RunWide<1>(sums, left, parameters, at, progress);
      if constexpr (kFirstNarrow < kNumLayers) RunFrom<kFirstNarrow>(sums, left, parameters, at, progress);
    }
  }
}
