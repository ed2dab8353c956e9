// Kernels from short to long, of the kinds that best-effort programs are made of: one program, one kernel a run.
//
//   best_effort_kernels --list
//   best_effort_kernels KERNEL [--launches N] [--settle SECONDS] [--divide N]
//
// KERNEL is first launched for --settle seconds (a daemon that measures other forms of it needs launches to do so).
// Then its data is set to what it was, the word "begin" goes to stdout, and N launches follow, each on the results of
// the one before: a block that is lost or runs twice changes the digest. The last line is JSON: microseconds per
// launch, by events around batches of launches, and the digest of the data. --divide makes grids and data smaller: for
// the software driver.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

#define CHECK(call)                                                                                                 \
  do {                                                                                                              \
    const cudaError_t result_of_call = (call);                                                                      \
    if (result_of_call != cudaSuccess) {                                                                            \
      fprintf(stderr, "best_effort_kernels: line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(result_of_call)); \
      exit(1);                                                                                                      \
    }                                                                                                               \
  } while (false)

__host__ __device__ uint32_t Mix(uint32_t value) {
  value ^= value >> 16;
  value *= 0x7feb352du;
  value ^= value >> 15;
  return value * 0x846ca68bu;
}

__global__ void Elementwise(uint32_t* x, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = Mix(x[i] + 1);
}

// The block's number and little else: what a block costs.
__global__ void ShortBlocks(uint32_t* x) {
  if (threadIdx.x == 0) x[blockIdx.x] += blockIdx.x + 1;
}

// A chain of dependent loads: blocks of some 20 microseconds that use little of the GPU.
__global__ void PointerChase(uint32_t* x, const uint32_t* next, uint32_t n) {
  uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) % n;
  for (int i = 0; i < 32; ++i) at = next[at] % n;
  x[blockIdx.x * blockDim.x + threadIdx.x] += at;
}

__global__ void BlockSum(const uint32_t* x, uint32_t* sums) {
  __shared__ uint32_t part[256];
  part[threadIdx.x] = Mix(x[blockIdx.x * 256 + threadIdx.x] + sums[blockIdx.x]);
  __syncthreads();
  for (uint32_t step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

__global__ void Transpose(const uint32_t* from, uint32_t* to, uint32_t width) {
  __shared__ uint32_t tile[32][33];
  const uint32_t x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (uint32_t i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = from[(y + i) * width + x] + 1;
  __syncthreads();
  const uint32_t column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
  for (uint32_t i = 0; i < 32; i += 8) to[(row + i) * width + column] = tile[threadIdx.x][threadIdx.y + i];
}

__global__ void MatrixProduct(const float* a, const float* b, float* c, uint32_t size) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  const uint32_t row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = c[row * size + column] * 0.5f;
  for (uint32_t k = 0; k < size; k += 16) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * size + k + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * size + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  c[row * size + column] = sum * (1.0f / 4096);
}

// Three dimensions; threads outside leave early.
__global__ void Stencil(const uint32_t* from, uint32_t* to, uint32_t width, uint32_t height, uint32_t depth) {
  const uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
  if (x >= width || y >= height || z >= depth) return;
  const auto at = [&](uint32_t i, uint32_t j, uint32_t k) { return from[(k * height + j) * width + i]; };
  const uint32_t left = x == 0 ? 0 : x - 1, above = y == 0 ? 0 : y - 1, before = z == 0 ? 0 : z - 1;
  to[(z * height + y) * width + x] = Mix(at(x, y, z) + 3 * at(left, y, z) + 5 * at(x, above, z) + 7 * at(x, y, before));
}

__global__ void Histogram(const uint32_t* x, uint32_t* bins, uint32_t n) {
  __shared__ uint32_t own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  const uint32_t first = blockIdx.x * 4096;
  for (uint32_t i = first + threadIdx.x; i < min(first + 4096, n); i += 256) atomicAdd(&own[Mix(x[i]) >> 24], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

__device__ float WarpMax(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  return value;
}
__device__ float WarpSum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}
__global__ void SoftmaxRows(float* rows) {  // of 1024
  __shared__ float part[8];
  float* row = rows + size_t{blockIdx.x} * 1024;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float value[4], most = -1e30f, sum = 0;
  for (int i = 0; i < 4; ++i) most = fmaxf(most, value[i] = row[threadIdx.x + 256 * i] * 3.0f);
  most = WarpMax(most);
  if (lane == 0) part[warp] = most;
  __syncthreads();
  most = WarpMax(part[lane % 8]);
  __syncthreads();
  for (int i = 0; i < 4; ++i) sum += value[i] = __expf(value[i] - most);
  sum = WarpSum(sum);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = WarpSum(part[lane % 8]) / 4;
  for (int i = 0; i < 4; ++i) row[threadIdx.x + 256 * i] = value[i] / sum;
}

__global__ void SortTiles(uint32_t* x) {  // of 512: bitonic, 45 barriers
  __shared__ uint32_t tile[512];
  uint32_t* own = x + size_t{blockIdx.x} * 512;
  for (uint32_t i = threadIdx.x; i < 512; i += 256) tile[i] = Mix(own[i] + 1);
  __syncthreads();
  for (uint32_t size = 2; size <= 512; size *= 2) {
    for (uint32_t step = size / 2; step > 0; step /= 2) {
      const uint32_t i = 2 * threadIdx.x - (threadIdx.x & (step - 1));
      const bool rises = (i & size) == 0;
      if ((tile[i] > tile[i + step]) == rises) {
        const uint32_t other = tile[i];
        tile[i] = tile[i + step];
        tile[i + step] = other;
      }
      __syncthreads();
    }
  }
  for (uint32_t i = threadIdx.x; i < 512; i += 256) own[i] = tile[i];
}

__device__ __noinline__ uint32_t BlockNumber() { return blockIdx.y * gridDim.x + blockIdx.x; }
__global__ void Calls(uint32_t* x) {
  const uint32_t i = BlockNumber() * 256 + threadIdx.x;
  x[i] = Mix(x[i] + BlockNumber());
}

// Blocks that take from a microsecond to some hundred.
__global__ void Mandelbrot(uint32_t* x, uint32_t width, uint32_t height) {
  const uint32_t column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  const float real = 3.0f * static_cast<float>(column) / static_cast<float>(width) - 2.2f;
  const float imaginary = 2.4f * static_cast<float>(row) / static_cast<float>(height) - 1.2f;
  float a = 0, b = 0;
  uint32_t steps = 0;
  for (; steps < 500 && a * a + b * b < 4; ++steps) {
    const float next = a * a - b * b + real;
    b = 2 * a * b + imaginary;
    a = next;
  }
  x[row * width + column] += steps;
}

// About one block per multiprocessor, each of milliseconds: there is hardly a block boundary to stop at.
__global__ void LongBlocks(uint32_t* x, uint32_t rounds) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t value = x[i];
  for (uint32_t round = 0; round < rounds; ++round) value = Mix(value + round);
  x[i] = value;
}

constexpr size_t kMostWords = 32u << 20;

// Two arrays of numbers and how much smaller than a GPU wants them everything is.
struct State {
  uint32_t* x;
  uint32_t* y;
  uint32_t divide;
  uint32_t Count(uint32_t count, uint32_t least = 1) const { return std::max(least, count / divide); }
  float* Floats(uint32_t* words) const { return reinterpret_cast<float*>(words); }
};

struct Case {
  const char* name;
  bool is_float;
  void (*launch)(const State&);
};

constexpr Case kCases[] = {
    {"elementwise_short", false, [](const State& s) { Elementwise<<<s.Count(512), 256>>>(s.x, s.Count(512) * 256); }},
    {"elementwise", false,
     [](const State& s) { Elementwise<<<s.Count(65'536), 256>>>(s.x, s.Count(65'536) * 256 - 7); }},
    {"elementwise_long", false,
     [](const State& s) { Elementwise<<<s.Count(131'072), 256>>>(s.x, s.Count(131'072) * 256 - 7); }},
    {"short_blocks", false, [](const State& s) { ShortBlocks<<<s.Count(1'000'000), 32>>>(s.x); }},
    {"pointer_chase", false,
     [](const State& s) { PointerChase<<<s.Count(16'384), 64>>>(s.x, s.y, s.Count(kMostWords, 4096)); }},
    {"block_sum", false, [](const State& s) { BlockSum<<<s.Count(131'072), 256>>>(s.x, s.y); }},
    {"transpose", false,
     [](const State& s) {
       const uint32_t tiles = s.divide > 1 ? 4 : 160;
       Transpose<<<dim3(tiles, tiles), dim3(32, 8)>>>(s.x, s.y, tiles * 32);
       Transpose<<<dim3(tiles, tiles), dim3(32, 8)>>>(s.y, s.x, tiles * 32);
     }},
    {"matrix_product", true,
     [](const State& s) {
       const uint32_t tiles = s.divide > 1 ? 3 : 128, size = tiles * 16;
       MatrixProduct<<<dim3(tiles, tiles), dim3(16, 16)>>>(s.Floats(s.x), s.Floats(s.x) + size * size, s.Floats(s.y),
                                                           size);
     }},
    {"stencil", false,
     [](const State& s) {
       const uint32_t side = s.divide > 1 ? 20 : 310;
       const dim3 grid((side + 31) / 32, (side + 3) / 4, side);
       Stencil<<<grid, dim3(32, 4)>>>(s.x, s.y, side, side, side);
       Stencil<<<grid, dim3(32, 4)>>>(s.y, s.x, side, side, side);
     }},
    {"histogram", false, [](const State& s) { Histogram<<<s.Count(8192), 256>>>(s.x, s.y, s.Count(8192) * 4096); }},
    {"softmax", true, [](const State& s) { SoftmaxRows<<<s.Count(32'768), 256>>>(s.Floats(s.x)); }},
    {"sort_tiles", false, [](const State& s) { SortTiles<<<s.Count(65'536), 256>>>(s.x); }},
    {"calls", false, [](const State& s) { Calls<<<dim3(s.Count(256, 2), 256 / (s.divide > 1 ? 64 : 1)), 256>>>(s.x); }},
    {"mandelbrot", false,
     [](const State& s) {
       const uint32_t tiles = s.divide > 1 ? 4 : 256;
       Mandelbrot<<<dim3(tiles, tiles), dim3(16, 16)>>>(s.x, tiles * 16, tiles * 16);
     }},
    {"long_blocks", false, [](const State& s) { LongBlocks<<<128, 256>>>(s.x, s.Count(200'000, 20)); }},
};

void SetData(const State& state, bool is_float) {
  static const std::vector<uint32_t> start = [] {
    std::vector<uint32_t> words(kMostWords);
    for (uint32_t i = 0; i < words.size(); ++i) words[i] = Mix(i + 1);
    return words;
  }();
  std::vector<uint32_t> words(start.begin(), start.begin() + kMostWords / state.divide);
  if (is_float) {
    for (uint32_t& word : words) {
      const float value = static_cast<float>(word >> 8) / static_cast<float>(1 << 24);
      std::memcpy(&word, &value, sizeof(word));
    }
  }
  for (uint32_t* array : {state.x, state.y}) {
    CHECK(cudaMemcpy(array, words.data(), words.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
  }
}

uint64_t Digest(const State& state) {
  std::vector<uint32_t> words(kMostWords / state.divide);
  uint64_t digest = 0xcbf29ce484222325u;
  for (uint32_t* array : {state.x, state.y}) {
    CHECK(cudaMemcpy(words.data(), array, words.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    for (const uint32_t word : words) digest = (digest ^ word) * 0x100000001b3u;
  }
  return digest;
}

void Settle(const Case& chosen, const State& state, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  do {
    for (int i = 0; i < 8; ++i) chosen.launch(state);
    CHECK(cudaDeviceSynchronize());
  } while (std::chrono::steady_clock::now() < until);
}

// Microseconds per launch, a batch each.
std::vector<float> Measure(const Case& chosen, const State& state, int launches) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> samples;
  const int batch = std::clamp(launches / 20, 1, 50);
  for (int done = 0; done < launches; done += batch) {
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < batch; ++i) chosen.launch(state);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    samples.push_back(milliseconds * 1000 / static_cast<float>(batch));
  }
  CHECK(cudaGetLastError());
  return samples;
}

[[noreturn]] void Fail(const std::string& why) {
  fprintf(stderr, "best_effort_kernels: %s; see --list and the comment in the source\n", why.c_str());
  exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const Case* chosen = nullptr;
  int launches = 100;
  double settle = 0;
  State state{nullptr, nullptr, 1};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list") {
      for (const Case& one : kCases) printf("%s\n", one.name);
      return 0;
    }
    if (word.rfind("--", 0) != 0) {
      for (const Case& one : kCases) {
        if (word == one.name) chosen = &one;
      }
      if (chosen == nullptr) Fail("no kernel is called " + word);
      continue;
    }
    if (i + 1 == argc) Fail(word + " needs a number");
    const double value = atof(argv[++i]);
    if (word == "--launches") {
      launches = std::max(1, static_cast<int>(value));
    } else if (word == "--settle") {
      settle = value;
    } else if (word == "--divide") {
      state.divide = std::clamp(static_cast<uint32_t>(value), 1u, 1000u);
    } else {
      Fail("unknown option " + word);
    }
  }
  if (chosen == nullptr) Fail("no kernel given");
  CHECK(cudaMalloc(&state.x, kMostWords / state.divide * sizeof(uint32_t)));
  CHECK(cudaMalloc(&state.y, kMostWords / state.divide * sizeof(uint32_t)));
  SetData(state, chosen->is_float);
  Settle(*chosen, state, settle);
  SetData(state, chosen->is_float);
  printf("begin\n");
  fflush(stdout);
  const std::vector<float> samples = Measure(*chosen, state, launches);
  printf("{\"kernel\": \"%s\", \"digest\": \"%016llx\", \"us\": [", chosen->name,
         static_cast<unsigned long long>(Digest(state)));
  for (size_t i = 0; i < samples.size(); ++i) printf("%s%.3f", i == 0 ? "" : ", ", samples[i]);
  printf("]}\n");
  return 0;
}
