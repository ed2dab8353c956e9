// The vertical kernel for GPUs without wgmma (compute capability 8.0 and later, but for 9.0): a warp takes 16 rows through
// all layers, by mma.sync.
//
//     resident   all weights are fetched once, then each warp goes its own way
//     streamed   all warps go through a ring of panels together: while one is multiplied, the next are on their way
//
// Every thread fetches its part of each panel, by cp.async. A warp fetches and reads its own 16 rows of the input, so it
// waits for no other one there.

namespace tally_pipeline {

static_assert(kStreamed ? kStages >= 2 : kStages == 1 && !kIsWide);

constexpr int kWarpRows = 16;
constexpr uint32_t kPieceBytes = 16;  // what a thread fetches at once: 8 columns
constexpr uint32_t kBoxBytes = kPanelColumns * kPanelRowBytes;

// Panels for the second half of a layer's columns are those of the first half once more.
__device__ constexpr int PartsOf(int i) { return kStreamed ? Halves(i) : 1; }
__device__ constexpr int PartWidth(int i, int part) {
  if (!kStreamed) return kLayers[i].out;
  return part == 0 ? First(i) : kLayers[i].out - First(i);
}
// Panels of a tile: of a wide first layer's chunks, and of all others from layer `from` on.
__device__ constexpr int PanelsFrom(int from) {
  int panels = from == 0 && kIsWide ? kChunks * (kXPanels + PartsOf(1)) : 0;
  for (int i = Most(from, kFirstNarrow); i < kNumLayers; ++i) panels += PartsOf(i) * Panels(i);
  return panels;
}
// Behind this layer the next tile's rows are fetched. It shares its instructions with no other.
constexpr int kLastOfInput = kIsWide ? Most(LastUseOfInput(), 1) : LastUseOfInput();
// Layers i to EndOfRun(i) - 1 are computed by the same instructions. The last layer has its own.
__device__ constexpr int EndOfRun(int i) {
  int end = i + 1;
  while (i > kLastOfInput && end + 1 < kNumLayers && AreAlike(kLayers[i], kLayers[end])) ++end;
  return end;
}

// --- fetching --------------------------------------------------------------------------------------------------------

// 16 bytes, or zeros.
__device__ __forceinline__ void Fetch(uint32_t to, const Element* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? kPieceBytes : 0u) : "memory");
}
__device__ __forceinline__ void CommitFetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most so many of this thread's groups are on their way, or none of its copies.
template <int kGroups>
__device__ __forceinline__ void AwaitFetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
__device__ __forceinline__ void AwaitAllFetches() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Where piece `piece` of a row of 128 bytes lies.
__device__ __forceinline__ uint32_t Swizzled(uint32_t row, uint32_t piece) {
  return row * kPanelRowBytes + (piece ^ row % 8) * kPieceBytes;
}

constexpr int kRowsAtOnce = kComputeThreads / 8;  // of 128 bytes, which all threads fetch together; multiples of 8

// Which panel comes next, in the order in which they are multiplied, and where this thread's part of it begins. What
// panels of the same columns have in common is looked up for the first of them alone.
struct Cursor {
  int layer = 0, part = 0, panel = 0;
  int chunk = 0;  // of a wide first layer and of the second, which take turns
  const Element* from;
  long long pitch;  // elements
  int width;        // columns of the layer
  int k_left;       // rows of the left operand from the panel's on

  __device__ __forceinline__ bool TakesChunks() const { return kIsWide && layer == 1; }
  __device__ __forceinline__ void LookUp(const Parameters& parameters) {
    const Layer& of = kLayers[layer];
    const bool is_wide = kIsWide && layer == 0;
    const bool is_hidden = TakesChunks() || panel < HiddenPanels(layer);
    const int k = TakesChunks() ? chunk * kPanelColumns : 0;
    const int column = is_wide ? chunk * kPanelColumns : part * First(layer);
    const int row = threadIdx.x / 8, piece = threadIdx.x % 8 * 8;
    pitch = parameters.weights[layer].pitch;
    width = is_wide ? kPanelColumns : PartWidth(layer, part);
    k_left = (is_hidden ? of.hidden : kInput) - k;
    const int k_at = (is_hidden ? of.hidden_at : of.input_at) + k;
    from = parameters.weights[layer].at + (kTransposed ? (k_at + row) * pitch + column + piece : (column + row) * pitch + k_at + piece);
  }
  __device__ __forceinline__ void Next(const Parameters& parameters) {
    ++panel;
    if (!TakesChunks() && panel < (kIsWide && layer == 0 ? kXPanels : Panels(layer))) {
      k_left -= kPanelColumns;
      from += kTransposed ? kPanelColumns * pitch : kPanelColumns;
      if (panel == HiddenPanels(layer)) LookUp(parameters);  // from here on those that meet the input
      return;
    }
    panel = 0;
    NextPart();
    LookUp(parameters);
  }

 private:
  __device__ __forceinline__ void NextPart() {
    if (kIsWide && layer == 0) {
      layer = 1;
      return;
    }
    if (++part < PartsOf(layer)) return;
    part = 0;
    if (TakesChunks() && ++chunk < kChunks) {
      layer = 0;
      return;
    }
    chunk = 0;
    if (++layer == kNumLayers) layer = 0;
  }
};

// This thread's part of it. What is beyond the weights that it meets is zero.
__device__ __forceinline__ void FetchPanel(const Cursor& next, uint32_t to) {
  const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
  to += Swizzled(row, piece);
  const Element* from = next.from;
  if constexpr (kTransposed) {
    for (int column = piece * 8; column - piece * 8 < next.width; column += kPanelColumns) {
      for (int r = 0; row + r < kPanelColumns; r += kRowsAtOnce) {
        Fetch(to + r * kPanelRowBytes, from + r * next.pitch, row + r < next.k_left && column < next.width);
      }
      to += kBoxBytes;
      from += kPanelColumns;
    }
  } else {
    for (int r = row; r < next.width; r += kRowsAtOnce) {
      Fetch(to, from, piece * 8 < next.k_left);
      to += kRowsAtOnce * kPanelRowBytes;
      from += kRowsAtOnce * next.pitch;
    }
  }
}

// Of this thread's warp, of `tile`.
__device__ __forceinline__ void FetchRows(const Parameters& parameters, const Place& at, int tile) {
  const int first = at.thread / 32 * kWarpRows;
#pragma unroll 1
  for (int i = at.thread % 32; i < kXPanels * kWarpRows * 8; i += 32) {
    const int panel = i / (kWarpRows * 8), row = first + i / 8 % kWarpRows, piece = i % 8;
    const int column = panel * kPanelColumns + piece * 8;
    const long long of_all = static_cast<long long>(tile) * kRows + row;
    const bool is_there = of_all < parameters.rows && column < kInput;
    Fetch(at.slot + panel * kXPanelBytes + Swizzled(row, piece),
          is_there ? parameters.x.at + of_all * parameters.x.pitch + column : parameters.x.at, is_there);
  }
}

// --- products --------------------------------------------------------------------------------------------------------

// Four fragments of 8 rows of 16 bytes; each lane names a row.
template <bool kAreTransposed>
__device__ __forceinline__ void LoadFragments(uint32_t (&to)[4], uint32_t row) {
  if constexpr (kAreTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  }
}
// 16 rows and columns times 16 rows and 8 columns.
__device__ __forceinline__ void Product(float* sums, const uint32_t* left, uint32_t low, uint32_t high) {
#if TALLY_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
}

// A panel at `panel`, of kOut columns of the layer, with kSteps times 16 columns of `left`, or of panel number `of_input`
// of the slot.
template <int kOut, int kSteps, bool kOfInput>
__device__ __forceinline__ void MultiplyPanel(float* sums, const uint32_t* left, int of_input, uint32_t panel, const Place& at) {
  const uint32_t lane = at.thread % 32;
  const uint32_t row = at.thread / 32 * kWarpRows + lane % 16;
  const uint32_t rows = Anew(at.slot) + of_input * kXPanelBytes;
  // Fragments: the lower and upper 8 of 16 values of k, of 8 columns; then of the next 8 columns.
  const uint32_t right = panel + (kTransposed ? Swizzled(lane % 16, lane / 16) : Swizzled(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    uint32_t l[4];
    if constexpr (kOfInput) {
      LoadFragments<false>(l, rows + Swizzled(row, 2 * k + lane / 16));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) l[i] = left[4 * k + i];
    }
#pragma unroll
    for (int j = 0; j < kOut / 16; ++j) {
      uint32_t r[4];
      if constexpr (kTransposed) {
        LoadFragments<true>(r, (right ^ j % 4 * 32) + j / 4 * kBoxBytes + k * 16 * kPanelRowBytes);
      } else {
        LoadFragments<false>(r, (right ^ k * 32) + j * 16 * kPanelRowBytes);
      }
      Product(sums + 8 * j, l, r[0], r[1]);
      Product(sums + 8 * j + 4, l, r[2], r[3]);
    }
  }
}

// --- a layer ---------------------------------------------------------------------------------------------------------

// The same in all threads of a block, but for the tile.
struct Progress {
  Cursor cursor;      // of the panel that is fetched next
  long long to_fetch;  // panels
  uint32_t stage = 0;  // of the panel that is multiplied next
  int tile, next_tile, tiles;
  __device__ __forceinline__ bool HasTile() const { return tile < tiles; }
};

// Into place `stage` of the ring.
__device__ __forceinline__ void FetchNext(const Parameters& parameters, const Place& at, Progress& progress, uint32_t stage) {
  if (progress.to_fetch > 0) {
    FetchPanel(progress.cursor, at.shared + stage * kStageBytes);
    progress.cursor.Next(parameters);
    --progress.to_fetch;
  }
  CommitFetches();  // also of nothing: groups are counted
}

// Where the next panel is. Nobody reads the one before any more, so its place is filled.
__device__ __forceinline__ uint32_t NextPanel(const Parameters& parameters, const Place& at, Progress& progress) {
  AwaitFetches<Most(kStages - 2, 0)>();
  __syncthreads();
  const uint32_t stage = progress.stage;
  FetchNext(parameters, at, progress, stage == 0 ? kStages - 1 : stage - 1);
  progress.stage = stage + 1 == kStages ? 0 : stage + 1;
  return Anew(at.shared) + stage * kStageBytes;
}

// The products of a layer like I from a panel on: sums[4*j ..] are columns 8*j.. of this thread's two rows.
template <int I, int kPart, int kPanel>
__device__ __forceinline__ void Multiply(Sums& sums, const Left& left, const Parameters& parameters, const Place& at, Progress& progress,
                                         int layer) {
  constexpr bool kOfInput = I == 0 || kPanel >= HiddenPanels(I);
  constexpr int p = kOfInput && I != 0 ? kPanel - HiddenPanels(I) : kPanel;
  constexpr int kSteps = Least(CeilDiv(kOfInput ? kInput : kLayers[I].hidden, 16) - 4 * p, 4);
  uint32_t panel;
  if constexpr (kStreamed) {
    panel = NextPanel(parameters, at, progress);
  } else {
    panel = Anew(at.shared) + WeightsBefore(I) + ((layer - I) * Panels(I) + kPanel) * PanelBytes(I);
  }
  MultiplyPanel<PartWidth(I, kPart), kSteps, kOfInput>(sums.of + kPart * First(I) / 2, left.of + (kOfInput ? 0 : 16 * p), p, panel, at);
  if constexpr (kPanel + 1 < Panels(I)) {
    Multiply<I, kPart, kPanel + 1>(sums, left, parameters, at, progress, layer);
  } else if constexpr (kPart + 1 < PartsOf(I)) {
    Multiply<I, kPart + 1, 0>(sums, left, parameters, at, progress, layer);
  }
}

template <int kCount>
__device__ __forceinline__ void Clear(float* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0.f;
}

// Behind the products of `layer`, which is alike to I, and has its vectors behind `before` floats.
template <int I>
__device__ __forceinline__ void End(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress, int layer,
                                    int before) {
  constexpr int kOut = kLayers[I].out;
  AddBias<kOut>(sums.of, at, before);
  Finish<I>(sums, at, before);
  if constexpr (I == kLastOfInput) {
    __syncwarp();  // nobody reads the slot any more
    if (progress.next_tile < progress.tiles) FetchRows(parameters, at, progress.next_tile);
  }
  if constexpr (I + 1 < kNumLayers) {
    ToLeft<I, kOut>(sums.of, left.of, sums.mask);
    if (progress.HasTile()) Save<I, 0, kOut>(left, parameters, at, layer, progress.tile);
  } else {
    if (progress.HasTile()) Store<0, kOut>(sums, parameters, at, progress.tile);
  }
}

template <int I>
__device__ __forceinline__ void RunFrom(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress) {
  constexpr int kEnd = EndOfRun(I);
#pragma unroll 1
  for (int layer = I; layer < kEnd; ++layer) {
    if (progress.HasTile()) LoadMask<I>(sums, parameters, at, layer, progress.tile);
    Clear<kLayers[I].out / 2>(sums.of);
    Multiply<I, 0, 0>(sums, left, parameters, at, progress, layer);
    End<I>(sums, left, parameters, at, progress, layer, VectorsBefore(I) + (layer - I) * VectorsOf(I));
  }
  if constexpr (kEnd < kNumLayers) RunFrom<kEnd>(sums, left, parameters, at, progress);
}

// --- a wide first layer ----------------------------------------------------------------------------------------------

template <int kPanel>
__device__ __forceinline__ void MultiplyChunk(float* sums, const Parameters& parameters, const Place& at, Progress& progress) {
  MultiplyPanel<kPanelColumns, Least(CeilDiv(kInput, 16) - 4 * kPanel, 4), true>(sums, nullptr, kPanel, NextPanel(parameters, at, progress),
                                                                                 at);
  if constexpr (kPanel + 1 < kXPanels) MultiplyChunk<kPanel + 1>(sums, parameters, at, progress);
}

// Its chunks of 64 columns, each of which the second layer takes at once. kSecond: 1; a shorter chain has none.
template <int kSecond>
__device__ __forceinline__ void RunWide(Sums& sums, Left& left, const Parameters& parameters, const Place& at, Progress& progress) {
  Clear<kLayers[kSecond].out / 2>(sums.of);
#pragma unroll 1
  for (int number = 0; number < kChunks; ++number) {
    float of_chunk[kPanelColumns / 2];
    uint32_t chunk[kPanelColumns / 4];
    Clear<kPanelColumns / 2>(of_chunk);
    MultiplyChunk<0>(of_chunk, parameters, at, progress);
    AddBias<kPanelColumns>(of_chunk, at, number * kPanelColumns);
    ToLeft<0, kPanelColumns>(of_chunk, chunk, nullptr);
    MultiplyPanel<First(kSecond), 4, false>(sums.of, chunk, 0, NextPanel(parameters, at, progress), at);
    if constexpr (PartsOf(kSecond) == 2) {
      MultiplyPanel<PartWidth(kSecond, 1), 4, false>(sums.of + First(kSecond) / 2, chunk, 0, NextPanel(parameters, at, progress), at);
    }
  }
  End<kSecond>(sums, left, parameters, at, progress, kSecond, VectorsBefore(kSecond));
}

// The rows of a tile are asked for behind the layer that used those before. Panels that were asked for later have been
// waited for by then, if there are enough.
__device__ __forceinline__ void AwaitRows() {
  constexpr bool kAreAwaited = kStreamed && PanelsFrom(kLastOfInput + 1) >= kStages;
  if constexpr (!kAreAwaited) AwaitAllFetches();
  __syncwarp();
}

}  // namespace tally_pipeline

extern "C" __global__ void __launch_bounds__(tally_pipeline::kComputeThreads, 1)
    tally_any_grid_vertical(const __grid_constant__ tally_pipeline::Parameters parameters) {
  using namespace tally_pipeline;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  const Place at = PlaceIn(shared);
  const int tiles = TilesOf(parameters);
  const int stride = gridDim.x * kWarpgroups;
  const int rounds = (tiles + stride - 1) / stride;
  if (blockIdx.x * kWarpgroups >= tiles) return;

  Progress progress;
  progress.tiles = tiles;
  progress.tile = blockIdx.x * kWarpgroups + warpgroup;
  progress.to_fetch = static_cast<long long>(rounds) * PanelsFrom(0);
  progress.cursor.LookUp(parameters);
  if (progress.HasTile()) FetchRows(parameters, at, progress.tile);
  if constexpr (kStreamed) {
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) FetchNext(parameters, at, progress, stage);
  } else {
    uint32_t to = at.shared;
#pragma unroll 1
    for (int i = 0; i < PanelsFrom(0); ++i, progress.cursor.Next(parameters)) {
      FetchPanel(progress.cursor, to);
      to += PanelBytes(progress.cursor.layer);
    }
    AwaitAllFetches();
  }
  LoadVectors<0>(parameters, at.vectors);
  __syncthreads();

  Sums sums;
  Left left;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round, progress.tile += stride) {
    if (!kStreamed && !progress.HasTile()) return;
    progress.next_tile = progress.tile + stride;
    AwaitRows();
    if constexpr (kIsWide) RunWide<1>(sums, left, parameters, at, progress);
    if constexpr (kFirstNarrow < kNumLayers) RunFrom<kFirstNarrow>(sums, left, parameters, at, progress);
  }
}
