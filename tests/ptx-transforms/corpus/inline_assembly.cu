// Inline assembly: registers with plain names, nested scopes, tensor cores, bulk copies, cache hints, special
// registers.
#include <cstdint>

__device__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__global__ void Scopes(int* out, uint64_t* wide) {
  int result;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\t.reg .b32 tmp<4>;\n\t.reg .v2 .b32 pair;\n\t"
      "setp.lt.and.s32 p|q, %1, 17, 1;\n\t@p mov.b32 tmp0, 5;\n\t@!p mov.b32 tmp0, (3 + 4) * -2;\n\t"
      "{ .reg .b32 tmp1; add.s32 tmp1, tmp0, 0x10; mov.b32 %0, tmp1; }\n\t"
      "mov.b32 pair.x, 1;\n\tselp.b32 %0, %0, 0b101, q;\n}"
      : "=r"(result)
      : "r"(static_cast<int>(threadIdx.x)));
  uint64_t time;
  uint32_t smid, lane, mask;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  asm volatile("mov.u32 %0, %smid; // which one\n\tmov.u32 %1, %laneid;" : "=r"(smid), "=r"(lane));
  asm volatile("mov.u32 %0, %lanemask_lt; /* below\n me */" : "=r"(mask));
  out[threadIdx.x] = result + smid + lane + mask;
  wide[threadIdx.x] = time;
}

__global__ void TensorCores(const uint32_t* a, const uint32_t* b, float* c) {
  __shared__ __align__(128) uint32_t tile[256];
  float d[4] = {};
  uint32_t r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(tile)));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  c[threadIdx.x] = d[0] + d[1] + d[2] + d[3] + r[0] + r[3];
}

__global__ void BulkCopies(const void* global, const __grid_constant__ uint4 map, int* out) {
  __shared__ __align__(128) char staged[1024];
  __shared__ uint64_t barrier;
  const uint32_t bar = SharedAddress(&barrier);
  const uint32_t dst = SharedAddress(staged);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(1));
  asm volatile("fence.proxy.async.shared::cta;");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          dst),
      "l"(&map), "r"(0), "r"(1), "r"(bar));
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst + 16), "l"(global));
  asm volatile("cp.async.wait_group 0;");
  asm volatile(
      "{\n.reg .pred done;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
      "bra LAB_WAIT;\nDONE:\n}" ::"r"(bar),
      "r"(0));
  uint32_t elected;
  asm volatile("{\n.reg .pred e;\nelect.sync _|e, 0xffffffff;\nselp.u32 %0, 1, 0, e;\n}" : "=r"(elected));
  int value;
  asm volatile("ld.global.L1::no_allocate.L2::256B.s32 %0, [%1+-8];" : "=r"(value) : "l"(global));
  asm volatile("red.relaxed.cluster.global.add.s32 [%0], %1;" ::"l"(out), "r"(value) : "memory");
  out[threadIdx.x] = staged[threadIdx.x] + elected;
}
