// Integer atomics on global and shared memory, 32 and 64 bits, from many blocks at once. Where the returned old value
// depends on timing only its set is a result: each ticket handed out exactly once.
#include <algorithm>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kBlocks = 20, kThreads = 128, kCount = kBlocks * kThreads;

struct Totals {
  uint32_t add, sub, min, max, bit_and, bit_or, bit_xor, inc, dec, cas, exchange_sum;
  int32_t signed_min, signed_max, signed_add;
  uint64_t add64, min64, max64, and64, or64, xor64;
  int64_t signed_min64, signed_max64;
};

uint32_t Value(uint32_t thread) { return thread * 2654435761u; }

Totals Start() {
  Totals t = {};
  t.sub = 1000000;
  t.min = ~0u;
  t.bit_and = ~0u;
  t.cas = 1;
  t.min64 = ~0ull;
  t.and64 = ~0ull;
  t.dec = 30;
  return t;
}

void Reference(Results& results) {
  Totals t = Start();
  std::vector<uint32_t> tickets;
  for (uint32_t i = 0; i < kCount; ++i) {
    uint32_t v = Value(i);
    int32_t s = static_cast<int32_t>(v);
    uint64_t wide = static_cast<uint64_t>(v) * v;
    t.add += v, t.sub -= i % 5;
    t.min = std::min(t.min, v), t.max = std::max(t.max, v);
    t.bit_and &= v | 0x00ff0000u, t.bit_or |= v & 0x0f0f0f0fu, t.bit_xor ^= v;
    t.inc = t.inc >= 99 ? 0 : t.inc + 1;
    t.dec = t.dec == 0 || t.dec > 77 ? 77 : t.dec - 1;
    t.cas *= 2 * i + 3;
    t.signed_min = std::min(t.signed_min, s), t.signed_max = std::max(t.signed_max, s);
    t.signed_add = static_cast<int32_t>(static_cast<uint32_t>(t.signed_add) + v);
    t.add64 += wide, t.min64 = std::min(t.min64, wide), t.max64 = std::max(t.max64, wide);
    t.and64 &= wide | 0xff, t.or64 |= wide & ~0xff00ull, t.xor64 ^= wide;
    int64_t signed_wide = static_cast<int64_t>(wide << 1);
    t.signed_min64 = std::min(t.signed_min64, signed_wide), t.signed_max64 = std::max(t.signed_max64, signed_wide);
    tickets.push_back(i);
  }
  t.exchange_sum = static_cast<uint32_t>(kCount) * (kCount + 1) / 2;
  results.AddValue("global", t);
  results.Add("tickets", tickets);
  std::vector<uint32_t> shared;
  for (int block = 0; block < kBlocks; ++block) {
    uint32_t sum = 0, high = 0;
    for (uint32_t i = block * kThreads; i < (block + 1u) * kThreads; ++i)
      sum += Value(i), high = std::max(high, Value(i));
    shared.insert(shared.end(), {sum, high});
  }
  results.Add("shared", shared);
}

__global__ void Atomics(Totals* t, uint32_t* exchange, uint32_t* tickets, uint32_t* next_ticket) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = i * 2654435761u;
  unsigned long long wide = static_cast<unsigned long long>(v) * v;
  atomicAdd(&t->add, v);
  atomicSub(&t->sub, i % 5);
  atomicMin(&t->min, v);
  atomicMax(&t->max, v);
  atomicAnd(&t->bit_and, v | 0x00ff0000u);
  atomicOr(&t->bit_or, v & 0x0f0f0f0fu);
  atomicXor(&t->bit_xor, v);
  atomicInc(&t->inc, 99);
  atomicDec(&t->dec, 77);
  uint32_t seen = t->cas, assumed;
  do {
    assumed = seen;
    seen = atomicCAS(&t->cas, assumed, assumed * (2 * i + 3));
  } while (seen != assumed);
  // Everything that goes in comes out again or stays: the sum does not depend on the order.
  atomicAdd(&t->exchange_sum, atomicExch(exchange, i + 1));
  atomicMin(&t->signed_min, static_cast<int>(v));
  atomicMax(&t->signed_max, static_cast<int>(v));
  atomicAdd(&t->signed_add, static_cast<int>(v));
  atomicAdd(reinterpret_cast<unsigned long long*>(&t->add64), wide);
  atomicMin(reinterpret_cast<unsigned long long*>(&t->min64), wide);
  atomicMax(reinterpret_cast<unsigned long long*>(&t->max64), wide);
  atomicAnd(reinterpret_cast<unsigned long long*>(&t->and64), wide | 0xff);
  atomicOr(reinterpret_cast<unsigned long long*>(&t->or64), wide & ~0xff00ull);
  atomicXor(reinterpret_cast<unsigned long long*>(&t->xor64), wide);
  atomicMin(reinterpret_cast<long long*>(&t->signed_min64), static_cast<long long>(wide << 1));
  atomicMax(reinterpret_cast<long long*>(&t->signed_max64), static_cast<long long>(wide << 1));
  tickets[i] = atomicAdd(next_ticket, 1u);
}

__global__ void SharedAtomics(uint32_t* out) {
  __shared__ uint32_t sum, high;
  if (threadIdx.x == 0) sum = high = 0;
  __syncthreads();
  uint32_t v = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u;
  atomicAdd_block(&sum, v);
  atomicMax(&high, v);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x * 2] = sum, out[blockIdx.x * 2 + 1] = high;
}

void Device(Results& results) {
  check::DeviceBuffer<Totals> totals(std::vector<Totals>{Start()});
  check::DeviceBuffer<uint32_t> words(2), tickets(kCount), shared(kBlocks * 2);
  words.Zero();
  Atomics<<<kBlocks, kThreads>>>(totals.get(), words.get(), tickets.get(), words.get() + 1);
  CHECK_LAUNCH();
  Totals t = totals.Download()[0];
  t.exchange_sum += words.Download()[0];
  results.AddValue("global", t);
  std::vector<uint32_t> handed_out = tickets.Download();
  std::sort(handed_out.begin(), handed_out.end());
  results.Add("tickets", handed_out);
  SharedAtomics<<<kBlocks, kThreads>>>(shared.get());
  CHECK_LAUNCH();
  results.Add("shared", shared.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
