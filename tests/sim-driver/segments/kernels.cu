// Kernels whose accesses are worth predicting, as nvcc emits them. Those of one signature are launched alike by
// soundness_test.cc, with sizes that fit, that are too large, negative, or that make 32-bit indices wrap.
#include <cstdint>

// (in, out, n, m, k): two pointers into the arena and three integers.
#define KERNEL(name) extern "C" __global__ void name(const float* in, float* out, int n, int m, int k)

KERNEL(copy_guarded) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + m;
}
KERNEL(grid_stride) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] * k;
}
KERNEL(transpose) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < n && y < m) out[x * m + y] = in[y * n + x];
}
KERNEL(pitched_rows) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < n && y < m) out[y * k + x] = in[y * k + x] + 1;
}
KERNEL(wrapping_rows) {
  unsigned i = (blockIdx.x * blockDim.x + threadIdx.x) * static_cast<unsigned>(n) + static_cast<unsigned>(m);
  out[i] = in[i % 1024u];
}
KERNEL(signed_rows) {
  int i = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) * static_cast<unsigned>(n)) + k;
  out[i] = in[threadIdx.x];
}
KERNEL(backwards) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[n - 1 - i] = in[i];
}
KERNEL(one_based) {
  const float* before = in - 1;
  int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
  if (i <= n) out[i - 1] = before[i];
}
KERNEL(stencil) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 1 && i < n - 1) out[i] = in[i - 1] + in[i] + in[i + 1];
}
KERNEL(clamped) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int left = max(i - k, 0), right = min(i + k, n - 1);
  if (i < n) out[i] = in[left] + in[right];
}
KERNEL(row_sum) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m) return;
  float sum = 0;
  for (int j = 0; j < n; ++j) sum += in[row * n + j];
  out[row] = sum;
}
KERNEL(column_sum) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= n) return;
  float sum = 0;
  for (int j = m - 1; j >= 0; j -= 2) sum += in[j * n + column];
  out[column] = sum;
}
KERNEL(product) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int j = 0; j < k; ++j) sum += in[row * k + j] * in[j * n + column];
  out[row * n + column] = sum;
}
KERNEL(triangle) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  for (int j = 0; j <= row; ++j) out[row * n + j] = in[j];
}
KERNEL(gather) {
  const int* indices = reinterpret_cast<const int*>(in);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[indices[i] & 1023];
}
KERNEL(histogram) {
  const unsigned* keys = reinterpret_cast<const unsigned*>(in);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&out[keys[i] % 64], 1.f);
}
KERNEL(vectors) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 4) reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(in)[i];
}
KERNEL(bytes) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) reinterpret_cast<signed char*>(out)[i] = reinterpret_cast<const signed char*>(in)[i * 3];
}
KERNEL(choose) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* from = (m & 1) ? in : out;
  float* to = i % 2 ? out + 4096 : out;
  if (i < n) to[i] = from[i];
}
KERNEL(division) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i / 7] = in[i % 13] + in[(i >> 3) & 31];
}
KERNEL(bit_tricks) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[(i & ~7u) | (7u - (i & 7u))] = in[(i ^ 21u) & 255u] + in[(i << 2 | 3u) & 1023u];
}
KERNEL(narrow) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned short half = static_cast<unsigned short>(i * n);
  signed char tiny = static_cast<signed char>(i + m);
  out[half] = in[tiny + 128];
}
__device__ __noinline__ float reads(const float* from, int at, int step) {
  float sum = 0;
  for (int j = 0; j < 4; ++j) sum += from[at + j * step];
  return sum;
}
__device__ __noinline__ float* moved(float* to, int by) { return by > 0 ? to + by : to; }
KERNEL(callees) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *moved(out, i) = reads(in, i, 16);
}
__device__ float table[256];
__constant__ float weights[64];
KERNEL(symbols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  table[i & 255] = in[i & 1023];
  if (i < n) out[i] = weights[threadIdx.x & 63] + table[(i + 1) & 127];
}
KERNEL(tiled) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += blockDim.y) {
    int y = blockIdx.y * 32 + j;
    if (threadIdx.x < 32 && x < n && y < m) tile[j][threadIdx.x] = in[y * n + x];
  }
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += blockDim.y) {
    int y = blockIdx.x * 32 + j;
    if (threadIdx.x < 32 && x < m && y < n) out[y * m + x] = tile[threadIdx.x][j];
  }
}
KERNEL(sliding) {
  const float* at = in + blockIdx.x * 16;
  for (int j = 0; j < n; ++j, at += m) out[threadIdx.x + j] = *at;
}
KERNEL(compressed_rows) {
  const int* starts = reinterpret_cast<const int*>(in);
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  float sum = 0;
  for (int j = starts[row] & 511; j < (starts[row + 1] & 511); ++j) sum += in[j];
  out[row] = sum;
}
KERNEL(doubling) {
  for (int step = 1; step < n; step *= 2)
    if (threadIdx.x % (2 * step) == 0) out[threadIdx.x + step] = in[threadIdx.x];
}
KERNEL(long_index) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i * k] = in[i + m];
}
KERNEL(nested) {
  for (int a = 0; a < k; ++a)
    for (int b = blockIdx.x; b < m; b += gridDim.x)
      for (int c = threadIdx.x; c < n; c += blockDim.x) out[(a * m + b) * n + c] = in[b * n + c];
}
KERNEL(counts_down) {
  int left = n;
  const float* at = in;
  do {
    out[left & 1023] = at[threadIdx.x];
    at += 32;
    left -= 4;
  } while (left > 0);
}

struct Many {
  float* pointers[4];
  int sizes[4];
  int num;
};
extern "C" __global__ void struct_of_pointers(Many many) {
  int which = blockIdx.x % many.num;
  float* at = many.pointers[which & 3];
  for (int i = threadIdx.x; i < many.sizes[which & 3]; i += blockDim.x) at[i] += 1;
}
extern "C" __global__ void pointers_in_memory(float* const* pointers, int n) {
  if (threadIdx.x < n) pointers[blockIdx.x & 1][threadIdx.x] = 1;
}
