// Templates, double and half arithmetic with internal calls, conversions, bit tricks, divisions by variables.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

template <typename T, int kUnroll>
__global__ void Axpy(const T* __restrict__ x, T* __restrict__ y, T a, int n) {
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int at = (blockIdx.x * blockDim.x + threadIdx.x) * kUnroll + i;
    if (at < n) y[at] = a * x[at] + y[at];
  }
}
template __global__ void Axpy<float, 4>(const float*, float*, float, int);
template __global__ void Axpy<double, 2>(const double*, double*, double, int);
template __global__ void Axpy<__half, 8>(const __half*, __half*, __half, int);
template __global__ void Axpy<__nv_bfloat16, 8>(const __nv_bfloat16*, __nv_bfloat16*, __nv_bfloat16, int);
template __global__ void Axpy<long long, 1>(const long long*, long long*, long long, int);

__global__ void Mathematics(const double* in, double* out, const float* fin, float* fout) {
  const double x = in[threadIdx.x];
  const float f = fin[threadIdx.x];
  out[threadIdx.x] = sin(x) + exp(x) / log(fabs(x) + 1e-300) + pow(x, 1.7) + fma(x, x, 0.5) + rsqrt(x) + erf(x);
  fout[threadIdx.x] =
      sinf(f) + __expf(f) + powf(f, 3.3f) + __fdividef(f, 3.0f) + sqrtf(f) + truncf(f) + tanhf(f) + fmodf(f, 7.1f);
}

__global__ void Integers(const uint32_t* in, uint64_t* out, uint32_t divisor, int64_t wide) {
  const uint32_t x = in[threadIdx.x];
  uint64_t sum = x / divisor + x % divisor + __popc(x) + __clz(x) + __ffs(x) + __brev(x);
  sum +=
      __byte_perm(x, divisor, 0x5140) + __funnelshift_l(x, divisor, 7) + __umulhi(x, divisor) + __dp4a(x, divisor, 3u);
  sum += static_cast<uint64_t>(wide / static_cast<int64_t>(x + 1)) + (wide >> (x & 63)) + __sad(1, 2, x);
  sum += __vabsdiffu4(x, divisor) + max(min(x, 100u), 3u);
  out[threadIdx.x] = sum;
}

__global__ void Halves(const __half2* in, __half2* out, __nv_bfloat162* other, const double* wide) {
  const __half2 x = in[threadIdx.x];
  out[threadIdx.x] = __hfma2(x, x, __hmul2(x, __float2half2_rn(2.5f)));
  other[threadIdx.x] = __floats2bfloat162_rn(__low2float(x), static_cast<float>(wide[threadIdx.x]));
  if (__hgt(x.x, x.y)) out[threadIdx.x] = __hmax2(x, h2exp(x));
}

__global__ void Narrow(const int8_t* a, const int16_t* b, uint8_t* c, float4* d, const uint4* e) {
  const uint4 v = e[threadIdx.x];
  d[threadIdx.x] = make_float4(v.x, v.y, __uint_as_float(v.z), static_cast<float>(static_cast<int>(v.w)));
  c[threadIdx.x] = static_cast<uint8_t>(a[threadIdx.x] * b[threadIdx.x]);
}
