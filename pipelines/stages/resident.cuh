// The vertical kernel, resident: a warpgroup takes 64 rows through all layers; all weights stay in shared memory.

namespace tally_pipeline {

static_assert(kStages == 1 && !kIsWide);

// Where in the weights of its layer panel number `panel` of layer i begins.
__device__ constexpr int ColumnOf(int i, int panel) {
  return panel < HiddenPanels(i) ? kLayers[i].hidden_at + panel * kPanelColumns
                                 : kLayers[i].input_at + (panel - HiddenPanels(i)) * kPanelColumns;
}

// The products of layer I from its panel kPanel on: sums[4*j ..] are columns 8*j.. of this thread's two rows.
template <int I, int kPanel>
__device__ __forceinline__ void Multiply(Sums& sums, const Left& left, const Place& at) {
  constexpr bool kOfInput = I == 0 || kPanel >= HiddenPanels(I);
  constexpr int p = kOfInput && I != 0 ? kPanel - HiddenPanels(I) : kPanel;
  constexpr int kColumns = kOfInput ? kInput : kLayers[I].hidden;
  constexpr int kSteps = CeilDiv(kColumns, 16) - 4 * p < 4 ? CeilDiv(kColumns, 16) - 4 * p : 4;
  const uint64_t right = RightDescriptor(Anew(at.shared) + WeightsBefore(I) + kPanel * PanelBytes(I));
  const uint64_t rows = Descriptor(Anew(at.slot) + p * kXPanelBytes);
  Pin<kLayers[I].out / 2>(sums.of);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if constexpr (kOfInput) {
      Product<kLayers[I].out>(sums.of, rows + kLeftStep * k, right + kRightStep * k, kPanel != 0 || k != 0);
    } else {
      const uint32_t* const l = left.of + 4 * (4 * p + k);
      Product<kLayers[I].out>(sums.of, l[0], l[1], l[2], l[3], right + kRightStep * k, kPanel != 0 || k != 0);
    }
  }
  CommitProducts();
  if constexpr (kPanel + 1 < Panels(I)) {
    Multiply<I, kPanel + 1>(sums, left, at);
  } else {
    AwaitProducts<0>();
    Pin<kLayers[I].out / 2>(sums.of);
  }
}

template <int I>
__device__ __forceinline__ void RunFrom(Sums& sums, Left& left, const Parameters& parameters, const Place& at, int warpgroup,
                                        int tile, int next_tile, int tiles) {
  constexpr int kOut = kLayers[I].out;
  LoadMask<I>(sums, parameters, at, I, tile);
  Multiply<I, 0>(sums, left, at);
  AddBias<kOut>(sums.of, at, VectorsBefore(I));
  Finish<I>(sums, at, VectorsBefore(I));
  if constexpr (I == LastUseOfInput()) {
    // Whoever reads the slot by plain loads must be done; products are.
    if constexpr (kLayers[I].residual) AwaitWarpgroup(warpgroup);
    if (at.thread == 0 && next_tile < tiles) FetchRows(parameters, at, RowsHere(at, warpgroup), next_tile);
  }
  if constexpr (I + 1 < kNumLayers) {
    ToLeft<I, kOut>(sums.of, left.of, sums.mask);
    // Before products read it: until they are done nobody else may.
    Save<I, 0, kOut>(left, parameters, at, I, tile);
    Pin<kOut / 4>(left.of);
    RunFrom<I + 1>(sums, left, parameters, at, warpgroup, tile, next_tile, tiles);
  } else {
    Store<0, kOut>(sums, parameters, at, tile);
  }
}

template <int I>
__device__ __forceinline__ void FetchWeights(const Parameters& parameters, const Place& at) {
#pragma unroll
  for (int panel = 0; panel < Panels(I); ++panel) {
    CopyPanel<PanelWidth(I)>(at.shared + WeightsBefore(I) + panel * PanelBytes(I), parameters.weights[I], ColumnOf(I, panel), 0,
                             Full(at, 0));
  }
  if constexpr (I + 1 < kNumLayers) FetchWeights<I + 1>(parameters, at);
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
  int tile = blockIdx.x * kWarpgroups + warpgroup;
  if (blockIdx.x * kWarpgroups >= tiles) return;

  PrefetchMaps(parameters);
  if (threadIdx.x == 0) {
    InitBarrier(Full(at, 0), 1);
    for (int w = 0; w < kWarpgroups; ++w) InitBarrier(RowsHere(at, w), 1);
    PublishBarriers();
  }
  __syncthreads();
  if (at.thread == 0 && tile < tiles) FetchRows(parameters, at, RowsHere(at, warpgroup), tile);
  if (threadIdx.x == 0) {
    ExpectBytes(Full(at, 0), kWeightBytes);
    FetchWeights<0>(parameters, at);
  }
  LoadVectors<0>(parameters, at.vectors);
  __syncthreads();
  Wait(Full(at, 0), 0);

  Sums sums;
  Left left;
  uint32_t parity = 0;
#pragma unroll 1
  for (; tile < tiles; tile += stride) {
    Wait(RowsHere(at, warpgroup), parity);
    parity ^= 1;
    RunFrom<0>(sums, left, parameters, at, warpgroup, tile, tile + stride, tiles);
  }
}
