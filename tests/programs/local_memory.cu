// Local memory and wide accesses: arrays indexed at run time (so they cannot be registers), pointers to locals passed
// to functions, vector loads and stores of 2 to 16 bytes, unaligned structs read bytewise, and generic pointers that
// point to global, shared or local memory.
#include <algorithm>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 256;

std::vector<uint32_t> Source() { return check::RandomIntegers<uint32_t>(kCount * 4, 161); }

uint32_t Hash(const uint32_t* words, uint32_t begin) {
  uint32_t table[16];
  for (uint32_t i = 0; i < 16; ++i) table[i] = words[i % 4] * (i + 1);
  for (uint32_t i = 0; i < 64; ++i) {
    uint32_t a = (begin + i * 7) % 16, b = table[a] % 16;
    uint32_t swap = table[a];
    table[a] = table[b] + i;
    table[b] = swap ^ i;
  }
  uint32_t hash = 0;
  for (uint32_t word : table) hash = hash * 31 + word;
  return hash;
}

void Reference(Results& results) {
  std::vector<uint32_t> in = Source(), hashes, vectors(kCount * 4), generic;
  for (uint32_t i = 0; i < kCount; ++i) hashes.push_back(Hash(&in[i * 4], i));
  results.Add("local tables", hashes);
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t* w = &in[i * 4];
    const uint32_t out[] = {w[3] + 1, w[2] ^ w[0], (w[1] & 0xffff0000u) | (w[0] & 0xffffu), w[1] * 3};
    std::copy(out, out + 4, &vectors[i * 4]);
    generic.push_back(i % 3 == 0 ? in[i] : i % 3 == 1 ? in[kCount - 1 - i] * 2 : i + 5);
  }
  results.Add("vectors", vectors);
  results.Add("generic pointers", generic);
  std::vector<uint64_t> unaligned;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(in.data());
  for (int i = 0; i < kCount; ++i) {
    uint64_t value;
    memcpy(&value, bytes + i * 3 + 1, 8);
    unaligned.push_back(value);
  }
  results.Add("unaligned", unaligned);
}

__device__ __noinline__ void Mix(uint32_t* table, uint32_t begin) {
  for (uint32_t i = 0; i < 64; ++i) {
    uint32_t a = (begin + i * 7) % 16, b = table[a] % 16;
    uint32_t swap = table[a];
    table[a] = table[b] + i;
    table[b] = swap ^ i;
  }
}

__global__ void LocalTables(const uint4* in, uint32_t* hashes) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 words = in[i];
  uint32_t four[4] = {words.x, words.y, words.z, words.w}, table[16];
  for (uint32_t k = 0; k < 16; ++k) table[k] = four[k % 4] * (k + 1);
  Mix(table, i);
  uint32_t hash = 0;
  for (uint32_t word : table) hash = hash * 31 + word;
  hashes[i] = hash;
}

__global__ void Vectors(const uint32_t* in, uint32_t* out) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 all = reinterpret_cast<const uint4*>(in)[i];
  uint2 low = reinterpret_cast<const uint2*>(in)[i * 2];
  ushort4 shorts = reinterpret_cast<const ushort4*>(in)[i * 2];
  uchar4 bytes = reinterpret_cast<const uchar4*>(in)[i * 4 + 3];
  uint32_t last = bytes.x | bytes.y << 8 | bytes.z << 16 | static_cast<uint32_t>(bytes.w) << 24;
  uint4 result = {last + 1, all.z ^ low.x, static_cast<uint32_t>(shorts.w) << 16 | shorts.x, low.y * 3};
  reinterpret_cast<uint4*>(out)[i] = result;
}

__global__ void GenericPointers(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t shared[kCount];
  uint32_t i = threadIdx.x, local[4] = {i, i + 5, i * 2, 0};
  shared[i] = in[i] * 2;
  __syncthreads();
  const uint32_t* pointer = i % 3 == 0 ? in + i : i % 3 == 1 ? shared + (kCount - 1 - i) : local + (i % 4 == 9 ? 2 : 1);
  out[i] = *pointer;
}

__global__ void Unaligned(const uint8_t* in, uint64_t* out) {
  uint64_t value;
  memcpy(&value, in + threadIdx.x * 3 + 1, 8);
  out[threadIdx.x] = value;
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> in(Source()), hashes(kCount), vectors(kCount * 4), generic(kCount);
  check::DeviceBuffer<uint64_t> unaligned(kCount);
  LocalTables<<<kCount / 64, 64>>>(reinterpret_cast<const uint4*>(in.get()), hashes.get());
  Vectors<<<kCount / 64, 64>>>(in.get(), vectors.get());
  GenericPointers<<<1, kCount>>>(in.get(), generic.get());
  Unaligned<<<1, kCount>>>(reinterpret_cast<const uint8_t*>(in.get()), unaligned.get());
  CHECK_LAUNCH();
  results.Add("local tables", hashes.Download());
  results.Add("vectors", vectors.Download());
  results.Add("generic pointers", generic.Download());
  results.Add("unaligned", unaligned.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
