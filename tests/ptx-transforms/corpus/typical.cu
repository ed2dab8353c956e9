// Kernels as people write them: strides, tiles, reductions, gathers, histograms, rows, structures of pointers, and some
// that wait, print or queue.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>

#define KERNEL extern "C" __global__ void
KERNEL saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
KERNEL grid_stride(size_t n, const float* x, float* y) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    y[i] = x[i];
}
KERNEL pitched(const char* in, char* out, size_t pitch, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) *(float*)(out + y * pitch + x * 4) = *(const float*)(in + y * pitch + x * 4);
}
KERNEL transpose(float* out, const float* in, int w, int h) {
  __shared__ float t[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < w && y + j < h) t[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < h && y + j < w) out[(y + j) * h + x] = t[threadIdx.x][threadIdx.y + j];
}
KERNEL block_sum(const float* in, float* out, int n) {
  __shared__ float s[256];
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
KERNEL last_block(const float* in, float* part, unsigned* count, float* out, int n) {
  __shared__ bool last;
  part[blockIdx.x] = in[blockIdx.x];
  __threadfence();
  if (threadIdx.x == 0) last = atomicInc(count, gridDim.x) == gridDim.x - 1;
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float s = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) s += part[i];
    *out = s;
  }
}
KERNEL gather(const int* idx, const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[idx[i]];
}
KERNEL scatter(const int* idx, const float* in, float* out, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int j = idx[i];
    if (j >= 0 && j < m) out[j] = in[i];
  }
}
KERNEL histogram(const unsigned char* in, unsigned* h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&h[in[i]], 1);
}
KERNEL histogram_checked(const unsigned* in, unsigned* h, int n, unsigned bins) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && in[i] < bins) atomicAdd(&h[in[i]], 1);
}
KERNEL scan_block(const int* in, int* out, int* sums, int n) {
  __shared__ int s[512];
  int i = blockIdx.x * 512 + threadIdx.x;
  int v = i < n ? in[i] : 0;
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = 1; d < 512; d *= 2) {
    int t = threadIdx.x >= d ? s[threadIdx.x - d] : 0;
    __syncthreads();
    s[threadIdx.x] += t;
    __syncthreads();
  }
  if (i < n) out[i] = s[threadIdx.x];
  if (threadIdx.x == 511) sums[blockIdx.x] = s[511];
}
KERNEL gemm_naive(const float* a, const float* b, float* c, int m, int n, int k) {
  int r = blockIdx.y * blockDim.y + threadIdx.y, q = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < m && q < n) {
    float s = 0;
    for (int i = 0; i < k; ++i) s += a[r * k + i] * b[i * n + q];
    c[r * n + q] = s;
  }
}
KERNEL gemm_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float A[16][16], B[16][16];
  int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
  float s = 0;
  for (int t = 0; t < k; t += 16) {
    A[threadIdx.y][threadIdx.x] = r < m && t + threadIdx.x < k ? a[r * k + t + threadIdx.x] : 0;
    B[threadIdx.y][threadIdx.x] = q < n && t + threadIdx.y < k ? b[(t + threadIdx.y) * n + q] : 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i) s += A[threadIdx.y][i] * B[i][threadIdx.x];
    __syncthreads();
  }
  if (r < m && q < n) c[r * n + q] = s;
}
KERNEL strided4(const float* in, float* out, int n, int4 shape, int4 stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int w = i % shape.w, z = i / shape.w % shape.z, y = i / shape.w / shape.z % shape.y,
        x = i / shape.w / shape.z / shape.y;
    out[i] = in[x * stride.x + y * stride.y + z * stride.z + w * stride.w];
  }
}
KERNEL nchw_bias(float* x, const float* b, int n, int c, int hw) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n * c * hw) x[i] += b[i / hw % c];
}
KERNEL mod_const(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i % 7] + in[i / 7];
}
KERNEL umod_const(const float* in, float* out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i % 12] + in[i / 12];
}
KERNEL half2_add(const __half2* a, const __half2* b, __half2* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __hadd2(a[i], b[i]);
}
KERNEL float4_copy(const float4* a, float4* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i];
}
struct Bodies {
  float* pos;
  float* vel;
  const float* mass;
  int n;
  float dt;
};
KERNEL bodies(Bodies s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < s.n) {
    s.vel[i] += s.dt * s.mass[i];
    s.pos[i] += s.dt * s.vel[i];
  }
}
struct Lists {
  float* p[8];
  int n[8];
};
KERNEL multi_tensor(Lists l, float a) {
  int t = blockIdx.y;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < l.n[t]; i += gridDim.x * blockDim.x) l.p[t][i] *= a;
}
KERNEL pointer_list(float** p, int n) {
  int i = threadIdx.x;
  if (i < n) p[blockIdx.x][i] += 1;
}
KERNEL unrolled(const float* in, float* out, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (i + j < n) out[i + j] = in[i + j];
}
KERNEL softmax_rows(const float* in, float* out, int rows, int cols) {
  int r = blockIdx.x;
  if (r >= rows) return;
  __shared__ float s;
  if (threadIdx.x == 0) s = 0;
  __syncthreads();
  float v = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) v += expf(in[r * cols + c]);
  atomicAdd(&s, v);
  __syncthreads();
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[r * cols + c] = expf(in[r * cols + c]) / s;
}
KERNEL stencil3d(const float* in, float* out, int nx, int ny, int nz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x > 0 && x < nx - 1 && y > 0 && y < ny - 1)
    for (int z = 1; z < nz - 1; ++z) {
      int i = (z * ny + y) * nx + x;
      out[i] = in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - nx * ny] + in[i + nx * ny];
    }
}
KERNEL csr(const int* rp, const int* ci, const float* v, const float* x, float* y, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < n) {
    float s = 0;
    for (int j = rp[r]; j < rp[r + 1]; ++j) s += v[j] * x[ci[j]];
    y[r] = s;
  }
}
KERNEL embedding(const int64_t* ids, const float* table, float* out, int dim) {
  int t = blockIdx.x;
  int64_t id = ids[t];
  for (int d = threadIdx.x; d < dim; d += blockDim.x) out[(int64_t)t * dim + d] = table[id * dim + d];
}
KERNEL bitonic(float* x, int j, int k) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, o = i ^ j;
  if (o > i) {
    float a = x[i], b = x[o];
    if (((i & k) == 0) == (a > b)) {
      x[i] = b;
      x[o] = a;
    }
  }
}
KERNEL resize(const float* in, float* out, int w, int h, int ow, int oh) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < ow && y < oh) {
    int sx = min(max((int)(x * (float)w / ow), 0), w - 1), sy = min(max(y * h / oh, 0), h - 1);
    out[y * ow + x] = in[sy * w + sx];
  }
}
__device__ unsigned counter;
__constant__ float coef[9];
KERNEL conv(const float* in, float* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) {
    float s = 0;
    for (int j = -1; j <= 1; ++j)
      for (int i = -1; i <= 1; ++i) {
        int u = min(max(x + i, 0), w - 1), v = min(max(y + j, 0), h - 1);
        s += coef[(j + 1) * 3 + i + 1] * in[v * w + u];
      }
    out[y * w + x] = s;
  }
  if (x == 0 && y == 0) atomicAdd(&counter, 1);
}
KERNEL tex_fetch(cudaTextureObject_t t, float* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) out[y * w + x] = tex2D<float>(t, x, y);
}
KERNEL spin(volatile int* f) {
  while (*f == 0)
    ;
}
KERNEL lookback(int* flag, int* v) {
  if (threadIdx.x == 0 && blockIdx.x > 0) {
    while (atomicAdd(&flag[blockIdx.x - 1], 0) == 0)
      ;
    v[blockIdx.x] = v[blockIdx.x - 1] + 1;
  }
  __threadfence();
  if (threadIdx.x == 0) atomicExch(&flag[blockIdx.x], 1);
}
KERNEL prints(int n) {
  if (threadIdx.x == n) printf("%d", n);
}
KERNEL queue(int* q, int n, float* x) {
  __shared__ int i;
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) i = atomicAdd(q, 1);
    __syncthreads();
    if (i >= n) return;
    x[i * blockDim.x + threadIdx.x] += 1;
  }
}
template <int R, class T>
__device__ void copyr(const T* __restrict__ a, T* __restrict__ b, int n) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    int i = blockIdx.x * blockDim.x * R + r * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
  }
}
KERNEL copy4(const double* a, double* b, int n) { copyr<4>(a, b, n); }
KERNEL warp_rows(const float* in, float* out, int rows, int cols) {
  int w = (blockIdx.x * blockDim.x + threadIdx.x) / 32, l = threadIdx.x % 32;
  if (w < rows) {
    float s = 0;
    for (int c = l; c < cols; c += 32) s += in[(size_t)w * cols + c];
    for (int o = 16; o; o /= 2) s += __shfl_down_sync(~0u, s, o);
    if (l == 0) out[w] = s;
  }
}
KERNEL matvec64(const double* a, const double* x, double* y, int64_t n, int64_t lda) {
  int64_t r = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (r < n) {
    double s = 0;
    for (int64_t c = 0; c < n; ++c) s += a[r + c * lda] * x[c];
    y[r] = s;
  }
}
KERNEL lbm(const float* f, float* g, int nx, int ny) {
  int x = threadIdx.x + blockIdx.x * blockDim.x, y = blockIdx.y;
  int xm = (x - 1 + nx) % nx, xp = (x + 1) % nx, ym = (y - 1 + ny) % ny, yp = (y + 1) % ny;
  if (x < nx) g[y * nx + x] = f[ym * nx + x] + f[yp * nx + x] + f[y * nx + xm] + f[y * nx + xp];
}
KERNEL last_arg_byte(const int8_t* in, int8_t* out, int8_t n, int stride) {
  int i = threadIdx.x;
  if (i < n) out[i * stride] = in[i];
}
