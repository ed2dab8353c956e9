// Kernels for gate_matrix: each uses something of the hardware or of the cubin format that a gate could disturb. All
// take
//   out, counts, n, us: counts[linear block] is incremented once by each block, each block takes about `us`
//   microseconds, and out is updated in a way that shows a block run twice or not at all, with the same bits every
//   time.
#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void
#define STANDARD float *out, unsigned *counts, int n, int us

__device__ unsigned Block() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
__device__ unsigned Thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
__device__ unsigned Threads() { return blockDim.x * blockDim.y * blockDim.z; }
__device__ int Element() { return static_cast<int>(Block() * Threads() + Thread()); }

// About what a block has to do besides its business.
__device__ void Enter(unsigned* counts, int us) {
  if (Thread() == 0) atomicAdd(counts + Block(), 1u);
  const long long end = clock64() + us * 1750ll;
  while (clock64() < end) {
  }
}
__device__ void Update(float* out, int n, float add) {
  const int i = Element();
  if (i < n) out[i] = out[i] * 1.25f + add;
}

KERNEL OneAxis(STANDARD) {
  Enter(counts, us);
  Update(out, n, blockIdx.x);
}

KERNEL ThreeAxes(STANDARD) {
  Enter(counts, us);
  Update(out, n, blockIdx.x + 7.f * blockIdx.y + 63.f * blockIdx.z + threadIdx.y);
}

KERNEL Barriers(STANDARD) {
  __shared__ float sums[256];
  Enter(counts, us);
  const unsigned t = Thread();
  const int i = Element();
  sums[t] = i < n ? out[i] : 0;
  __syncthreads();
  for (unsigned d = 1; d < 256; d *= 2) {
    const float left = t >= d ? sums[t - d] : 0;
    __syncthreads();
    sums[t] += left;
    __syncthreads();
  }
  if (t < 128) {
    asm volatile("bar.sync 1, 128;");
  } else {
    asm volatile("bar.sync 3, 128;");
  }
  const float v = sums[(t + 64) % 256];
  const int above = __syncthreads_count(v > 3.f);
  if (i < n) out[i] = v + above;
}

KERNEL DynamicShared(STANDARD) {
  extern __shared__ float scratch[];
  Enter(counts, us);
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  const unsigned words = bytes / 4;
  for (unsigned k = Thread(); k < words; k += Threads()) scratch[k] = k * 0.5f + Block();
  __syncthreads();
  float sum = 0;
  for (unsigned k = 0; k < 8; ++k) sum += scratch[(Element() * 131u + k * 977u) % words];
  Update(out, n, sum);
}

__device__ __noinline__ float Series(float x, int terms) {
  float sum = 0;
  for (int i = 0; i < terms; ++i) sum += __sinf(x + i);
  return sum;
}
__device__ __noinline__ float Recurse(float x, int depth) {
  return depth <= 0 ? x : Recurse(x * 0.5f + depth, depth - 1) + Series(x, 2);
}
__device__ __noinline__ float Minus(float x, int y) { return x - y; }
using Function = float (*)(float, int);
__device__ Function functions[3] = {Series, Recurse, Minus};

KERNEL Calls(STANDARD) {
  Enter(counts, us);
  Update(out, n, Recurse(Thread(), 3 + (Thread() & 3)));
}

KERNEL FunctionPointers(STANDARD) {
  Enter(counts, us);
  Update(out, n, functions[(Block() + Thread() / 32) % 3](Thread(), 4));
}

KERNEL SwitchTable(STANDARD) {
  Enter(counts, us);
  const int i = Element();
  if (i >= n) return;
  float v = out[i];
  const int which = static_cast<int>(v) & 15;
  switch (which) {
    case 0:
      v = v * 3;
      break;
    case 1:
      v = v + 77;
      break;
    case 2:
      v = sqrtf(v);
      break;
    case 3:
      v = fmodf(v, 7.f);
      break;
    case 4:
      v = __int_as_float(__float_as_int(v) ^ 123);
      break;
    case 5:
      v = __popc(static_cast<int>(v));
      break;
    case 6:
      v = v * v;
      break;
    case 7:
      v = __clz(static_cast<int>(v));
      break;
    case 8:
      v = 1 / v;
      break;
    case 9:
      v = v - 31;
      break;
    case 10:
      v = logf(v);
      break;
    case 11:
      v = v / 3;
      break;
    case 12:
      v = which;
      break;
    default:
      v = -1;
  }
  out[i] = v + 1;
}

KERNEL Prints(STANDARD) {
  Enter(counts, us);
  if (Thread() == 0 && Block() == 4321) printf("  block %u says hello\n", Block());
  Update(out, n, 2);
}

KERNEL LocalArrays(STANDARD) {
  Enter(counts, us);
  const int i = Element();
  float values[200];
  for (int k = 0; k < 200; ++k) values[k] = k * 1.5f + i;
  for (int k = 0; k < 50; ++k) values[(i * 7u + k * 13u) % 200] += values[(k * 31u + i) % 200];
  float sum = 0;
  for (int k = 0; k < 200; ++k) sum += values[(k * 17u + i) % 200];
  Update(out, n, sum);
}

KERNEL __launch_bounds__(1024, 2) LaunchBounds(STANDARD) {
  Enter(counts, us);
  Update(out, n, Block());
}

// Two warp groups trade registers, as the GEMM kernels of sm_90 do; every warp must be whole for it.
KERNEL __launch_bounds__(384, 1) TradesRegisters(STANDARD) {
  __shared__ float given[384];
  Enter(counts, us);
  const int i = Element();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    given[threadIdx.x] = i;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float values[96];
    for (int k = 0; k < 96; ++k) values[k] = __sinf(k * 0.1f + i);
    for (int round = 0; round < 4; ++round)
      for (int k = 0; k < 96; ++k) values[k] = values[k] * 1.01f + values[(k + 1) % 96];
    float sum = 0;
    for (int k = 0; k < 96; ++k) sum += values[k];
    given[threadIdx.x] = sum;
  }
  __syncthreads();
  Update(out, n, given[(threadIdx.x + 130) % 384]);
}

KERNEL __launch_bounds__(128, 1) ManyRegisters(STANDARD) {
  Enter(counts, us);
  float values[200];
#pragma unroll
  for (int k = 0; k < 200; ++k) values[k] = out[(Element() + k) % n] * 0.f + k + Thread();
  for (int round = 0; round < 2; ++round) {
#pragma unroll
    for (int k = 0; k < 200; ++k) values[k] = values[k] * 0.99f + values[(k + 7) % 200];
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 200; ++k) sum += values[k];
  __syncthreads();
  Update(out, n, sum);
}

struct FourKilobytes {
  float values[1018];  // with the other parameters 4096 bytes
};
struct SixteenKilobytes {
  float values[4000];
};
struct Odd {
  char bytes[13];
};
KERNEL LargeParameters(STANDARD, const __grid_constant__ FourKilobytes large) {
  Enter(counts, us);
  Update(out, n, large.values[Element() % 1018]);
}
KERNEL HugeParameters(STANDARD, const __grid_constant__ SixteenKilobytes huge) {
  Enter(counts, us);
  Update(out, n, huge.values[Element() % 4000]);
}
KERNEL OddParameters(STANDARD, Odd odd) {
  Enter(counts, us);
  Update(out, n, odd.bytes[Element() % 13]);
}

__device__ void InCluster(STANDARD) {
  __shared__ float mine[128];
  cg::cluster_group cluster = cg::this_cluster();
  Enter(counts, us);
  const int i = Element();
  mine[Thread()] = out[i];
  cluster.sync();
  float sum = 0;
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
    sum += cluster.map_shared_rank(mine, rank)[(Thread() + rank) % 128];
  cluster.sync();
  if (i < n) out[i] = sum * 0.25f + cluster.block_rank();
}
KERNEL __cluster_dims__(4, 1, 1) FixedCluster(STANDARD) { InCluster(out, counts, n, us); }
KERNEL LaunchedCluster(STANDARD) { InCluster(out, counts, n, us); }
KERNEL __cluster_dims__(1, 2, 2) FlatCluster(STANDARD) { InCluster(out, counts, n, us); }

// Each block waits for the one before it: what a scan with look-back does.
KERNEL LookBack(STANDARD) {
  volatile float* values = out;
  volatile unsigned* flags = reinterpret_cast<unsigned*>(out + n);
  const unsigned b = Block();
  if (Thread() == 0) {
    if (b != 0)
      while (flags[b - 1] == 0) {
      }
    __threadfence();
    values[b] = (b != 0 ? values[b - 1] : 0.f) + b % 17;
    __threadfence();
    flags[b] = 1;
  }
  Enter(counts, us);
}

// The block that is last sums up.
KERNEL LastBlock(STANDARD) {
  __shared__ bool is_last;
  Enter(counts, us);
  Update(out, n, 1);
  __threadfence();
  __syncthreads();
  unsigned* tail = reinterpret_cast<unsigned*>(out + n);
  const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
  if (Thread() == 0) is_last = atomicInc(tail, blocks - 1) == blocks - 1;
  __syncthreads();
  if (!is_last) return;
  unsigned sum = 0;
  for (int k = Thread(); k < n; k += Threads()) sum += __float_as_uint(reinterpret_cast<volatile float*>(out)[k]);
  atomicAdd(tail + 1, sum);
  if (Thread() == 0) atomicAdd(tail + 2, 1u);
}

KERNEL BulkCopy(STANDARD) {
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) uint64_t barrier;
  Enter(counts, us);
  const auto barrier_at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  const auto tile_at = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  if (Thread() == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\n fence.mbarrier_init.release.cluster;" ::"r"(barrier_at));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(barrier_at));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(tile_at),
        "l"(out + Block() * 256), "r"(barrier_at)
        : "memory");
  }
  __syncthreads();
  asm volatile(
      "{ .reg .pred done;\nWAIT: mbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n @!done bra WAIT; }" ::"r"(
          barrier_at)
      : "memory");
  const float v = tile[Thread() * 5 % 256];
  __syncthreads();
  const int i = Element();
  if (i < n) out[i] = v + 1;
}

KERNEL AsynchronousCopy(STANDARD) {
  __shared__ alignas(16) float tile[256];
  Enter(counts, us);
  const int i = Element();
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(tile + Thread()));
  if (i < n) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(out + i) : "memory");
  asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  const float v = tile[(Thread() + 33) % 256];
  __syncthreads();
  if (i < n) out[i] = v * 0.5f + 3;
}

KERNEL MatrixUnits(STANDARD) {
  Enter(counts, us);
  const int i = Element();
  const half2 a = __floats2half2_rn(Thread() % 7, 1), b = __floats2half2_rn(2, Thread() % 5);
  const unsigned au = *reinterpret_cast<const unsigned*>(&a), bu = *reinterpret_cast<const unsigned*>(&b);
  float d[4] = {1, 2, 3, 4};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(au), "r"(bu));
  if (i < n) out[i] = out[i] * 0.5f + d[0] + d[1] + d[2] + d[3];
}

// The warp group's matrix multiplication: fatal if a warp enters the kernel diverged.
KERNEL __launch_bounds__(128) WarpGroupMatrix(STANDARD) {
  __shared__ alignas(128) half tiles[64 * 16 + 16 * 8];
  Enter(counts, us);
  for (unsigned k = Thread(); k < sizeof(tiles) / sizeof(half); k += 128) tiles[k] = __float2half(k % 5 + Block() % 3);
  __syncthreads();
  asm volatile("fence.proxy.async;" ::: "memory");
  // No swizzle: 8 x 8 core matrices of 128 bytes, next to each other.
  const auto descriptor = [](const half* tile) {
    const auto at = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
    return (at & 0x3FFFF) >> 4 | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
  };
  const uint64_t a = descriptor(tiles), b = descriptor(tiles + 64 * 16);
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "{ .reg .pred keep;\n setp.ne.b32 keep, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, keep, 1, 1, 0, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
  Update(out, n, d[0] + 2 * d[1] + 3 * d[2] + 4 * d[3]);
}

__device__ unsigned own_counts[1 << 16];
__device__ float own_out[1 << 22];
KERNEL NoParameters() {  // its own variables take the place of out and counts
  Enter(own_counts, 15);
  own_out[Element()] = own_out[Element()] * 1.25f + Block();
}

KERNEL Empty() {}

KERNEL Atomics(STANDARD) {
  Enter(counts, us);
  unsigned* words = reinterpret_cast<unsigned*>(out);
  atomicAdd(words + Element() * 2654435761u % static_cast<unsigned>(n), Block() + 1);
}

KERNEL WarpFunctions(STANDARD) {
  Enter(counts, us);
  const int i = Element();
  float v = i < n ? out[i] : 0;
  const unsigned lanes = __activemask();
  v += __shfl_xor_sync(lanes, v, 1);
  const unsigned same = __match_any_sync(lanes, static_cast<int>(v) & 3);
  unsigned leader;
  asm volatile("{ .reg .pred p;\n elect.sync %0|p, %1; }" : "=r"(leader) : "r"(lanes));
  if (i < n) out[i] = v * 0.5f + __popc(same) + __reduce_add_sync(lanes, Thread()) + leader;
}

// Threads leave early, others go on together.
KERNEL LeavesEarly(STANDARD) {
  Enter(counts, us);
  if (Thread() % 3 == 1) return;
  Update(out, n, 1);
  __syncwarp(__activemask());
  if (Thread() > 40) return;
  Update(out, n, 2);
}

__constant__ float table[256] = {1, 2, 3, 5, 8, 13};
KERNEL ConstantMemory(STANDARD) {
  Enter(counts, us);
  Update(out, n, table[Thread() % 256]);
}

KERNEL DoublePrecision(STANDARD) {
  Enter(counts, us);
  double v = Thread() + 1;
  for (int k = 0; k < 10; ++k) v = sqrt(v * 3 + k) + 1 / v;
  Update(out, n, static_cast<float>(v));
}

KERNEL Sleeps(STANDARD) {
  Enter(counts, us / 2);
  __nanosleep(us * 500);
  Update(out, n, 4);
}

KERNEL GridStride(STANDARD) {
  Enter(counts, us);
  const int stride = static_cast<int>(gridDim.x * Threads());
  for (int i = Element(); i < n; i += stride) out[i] = out[i] * 1.25f + 1;
}

KERNEL Chained(STANDARD) {
  Enter(counts, us);
  const int i = Element();
  if (i < n) out[i] = out[(i + 12345) % n] * 0.f + out[i] * 1.25f + 1;
}

KERNEL Dependent(STANDARD) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  Enter(counts, us);
  Update(out, n, 1);
}

// For times only. Spin takes a time, whatever else goes on; MultiplyAdd takes as many instructions.
KERNEL Spin(STANDARD) {
  const long long end = clock64() + us * 1750ll;
  while (clock64() < end) {
  }
}
KERNEL MultiplyAdd(STANDARD) {
  float v = Thread();
  for (int k = 0; k < us * 440; ++k) v = v * 1.0001f + 0.5f;
  if (v == 12345.f) out[0] = v;
}
KERNEL ElementWise(STANDARD) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = out[i] * 2 + 1;
}
