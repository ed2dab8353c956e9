// Pairs of blocks that pass numbers through queues, for litmus tests and for bench/pipelines/queues.cu: each 16 bytes
// of each slot have their own contents, and the consumer looks at all of them.
#pragma once

#include "pipelines/queue/cluster_queue.cuh"

namespace tally_queue {

constexpr u32 kNever = ~0u;
constexpr u32 kStages = 4;  // pieces in shared memory, in the kernels with bulk copies

struct Run {
  u8* slots;                                // of all queues: ring after ring
  u32* words;                               // likewise
  u32* abort;                               // one for all
  u32* wrong;                               // how many 16 bytes were not what they should be
  u32* taken;                               // slots that were read, per consumer
  uint4* output;                            // what was read, slot after slot, consumer after consumer; may be null
  u32 depth, slot_bytes, consumers, count;  // count: slots that go through each queue
  u32 slow_producer, slow_consumer;         // ns that a warp is late at most, before it touches a slot
  u32 seed;
  u32 producer_ends_at, consumer_ends_at;  // without a word, at that slot; kNever
  u32 producer_aborts_at;

  __device__ u32 Vectors() const { return slot_bytes / 16; }
};

__device__ inline u32 Mix(u32 value) {
  value = (value ^ value >> 16) * 0x7feb352du;
  value = (value ^ value >> 15) * 0x846ca68bu;
  return value ^ value >> 16;
}
__device__ inline void BeLate(const Run& run, u32 most, u32 slot) {
  if (most == 0) return;
  const u32 draw = Mix(run.seed ^ Mix(slot * 4096 + blockIdx.x * 32 + threadIdx.x / 32));
  if (draw % 3 == 0) asm volatile("nanosleep.u32 %0;" ::"r"((draw >> 8) % most) : "memory");
}
__device__ inline uint4 Contents(u32 queue, u32 slot, u32 vector) {
  const u32 first = slot * 0x9e3779b1u + queue * 0x85ebca6bu + vector * 4;
  return make_uint4(first, ~first, slot, vector);
}
__device__ inline void Fill(const Run& run, u8* to, u32 queue, u32 slot, u32 from, u32 vectors) {
  BeLate(run, run.slow_producer, slot);
  for (u32 k = threadIdx.x; k < vectors; k += blockDim.x)
    reinterpret_cast<uint4*>(to)[k] = Contents(queue, slot, from + k);
}
// `consumer`: counted over all queues.
__device__ inline void Check(const Run& run, const u8* at, u32 queue, u32 consumer, u32 slot, u32 from, u32 vectors) {
  BeLate(run, run.slow_consumer, slot);
  u32 wrong = 0;
  for (u32 k = threadIdx.x; k < vectors; k += blockDim.x) {
    const uint4 found = reinterpret_cast<const uint4*>(at)[k];
    const uint4 expected = Contents(queue, slot, from + k);
    wrong += found.x != expected.x || found.y != expected.y || found.z != expected.z || found.w != expected.w;
    if (run.output != nullptr)
      run.output[(static_cast<u64>(consumer) * run.count + slot) * run.Vectors() + from + k] = found;
  }
  if (wrong != 0) atomicAdd(run.wrong, wrong);
}
__device__ inline Group WholeBlock() { return {0, 0, blockDim.x}; }
__device__ inline Ring RingOf(const Run& run, u32 queue) {
  const u64 bytes = static_cast<u64>(run.depth) * run.slot_bytes;
  return {run.slots + queue * bytes,
          run.words + queue * (1 + run.consumers) * kWordsPerLine,
          run.abort,
          run.depth,
          run.slot_bytes,
          run.consumers};
}
// True: the producer goes no further.
__device__ inline bool EndsAt(const Run& run, u32 slot) {
  if (slot == run.producer_aborts_at && threadIdx.x == 0) Abort(run.abort);
  return slot == run.producer_ends_at || slot == run.producer_aborts_at;
}

// Blocks: for each queue the producer, then its consumers.
__device__ inline void PassPlain(const Run& run) {
  const u32 queue = blockIdx.x / (1 + run.consumers), role = blockIdx.x % (1 + run.consumers);
  const Ring ring = RingOf(run, queue);
  if (role == 0) {
    RingProducer producer(ring, WholeBlock());
    for (u32 slot = 0; slot < run.count && !EndsAt(run, slot); ++slot) {
      u8* const to = producer.Acquire();
      if (to == nullptr) return;
      Fill(run, to, queue, slot, 0, run.Vectors());
      producer.Commit();
    }
    return;
  }
  RingConsumer consumer(ring, role - 1, WholeBlock());
  const u32 me = queue * run.consumers + role - 1;
  for (u32 slot = 0; slot < run.count && slot != run.consumer_ends_at; ++slot) {
    const u8* const at = consumer.Acquire();
    if (at == nullptr) return;
    Check(run, at, queue, me, slot, 0, run.Vectors());
    consumer.Release();
    if (threadIdx.x == 0) run.taken[me] = slot + 1;
  }
}

template <int kPuts>
__device__ inline void ProduceBulk(const Run& run, const Ring& ring, u32 queue, u8* buffers) {
  const u32 piece = run.slot_bytes / kPuts;
  BulkProducer<kPuts> producer(ring, WholeBlock());
  u8* to = nullptr;
  for (u32 k = 0; k < run.count * kPuts; ++k) {
    const u32 slot = k / kPuts, part = k % kPuts;
    if (part == 0 && (EndsAt(run, slot) || (to = producer.Acquire()) == nullptr)) break;
    if (threadIdx.x == 0) producer.template AwaitPutsRead<kStages - 1>();
    __syncthreads();
    u8* const buffer = buffers + k % kStages * piece;
    Fill(run, buffer, queue, slot, part * (piece / 16), piece / 16);
    PublishShared();
    __syncthreads();
    if (threadIdx.x == 0) producer.Put(to + part * piece, buffer, piece);
    if (part == kPuts - 1) producer.Commit();
  }
  if (threadIdx.x == 0) producer.Flush();
}

template <int kPuts>
__device__ inline void ConsumeBulk(const Run& run, const Ring& ring, u32 queue, u32 index, u8* buffers, u64* barriers) {
  const u32 piece = run.slot_bytes / kPuts, me = queue * run.consumers + index, total = run.count * kPuts;
  const u32 most_ahead = (run.depth - 1) * kPuts, ahead = most_ahead < kStages - 1 ? most_ahead : kStages - 1;
  const auto arrive = [&](u32 k) {
    while (!HasEnded(barriers + k % kStages, k / kStages & 1)) continue;
  };
  RingConsumer consumer(ring, index, WholeBlock());
  const u8* from = nullptr;
  u32 begun = 0, done = 0;
  for (bool goes_on = true; goes_on && done < total && done / kPuts != run.consumer_ends_at; ++done) {
    while (goes_on && begun < total && begun <= done + ahead) {
      if (begun % kPuts == 0) goes_on = (from = consumer.Acquire()) != nullptr;
      if (!goes_on) break;
      if (threadIdx.x == 0)
        consumer.Get(buffers + begun % kStages * piece, from + begun % kPuts * piece, piece,
                     barriers + begun % kStages);
      ++begun;
    }
    if (!goes_on) break;
    arrive(done);
    const u32 slot = done / kPuts, part = done % kPuts;
    Check(run, buffers + done % kStages * piece, queue, me, slot, part * (piece / 16), piece / 16);
    if (part != kPuts - 1) {
      __syncthreads();
      continue;
    }
    consumer.Release();
    if (threadIdx.x == 0) run.taken[me] = slot + 1;
  }
  for (; done < begun; ++done) arrive(done);
}

// Dynamic shared memory: kStages pieces of a slot, then a barrier for each.
template <int kPuts>
__device__ inline void PassBulk(const Run& run, u8* shared) {
  const u32 queue = blockIdx.x / (1 + run.consumers), role = blockIdx.x % (1 + run.consumers);
  auto* const barriers = reinterpret_cast<u64*>(shared + kStages * (run.slot_bytes / kPuts));
  if (threadIdx.x == 0) {
    for (u32 k = 0; k < kStages; ++k) InitBarrier(barriers + k, 1);
  }
  __syncthreads();
  const Ring ring = RingOf(run, queue);
  if (role == 0) {
    ProduceBulk<kPuts>(run, ring, queue, shared);
  } else {
    ConsumeBulk<kPuts>(run, ring, queue, role - 1, shared, barriers);
  }
}

// A cluster of two: producer, consumer. Dynamic shared memory: the slots, then 2 * depth + 1 words of 8 bytes.
template <bool kCopies>
__device__ inline void PassCluster(const Run& run, u8* shared) {
  const u32 queue = blockIdx.x / 2, role = blockIdx.x % 2;
  const ClusterRing ring{shared,         reinterpret_cast<u64*>(shared + run.depth * run.slot_bytes),
                         run.abort,      run.depth,
                         run.slot_bytes, 1 - role};
  if (threadIdx.x == 0) ring.Init();
  SyncCluster();
  if (role == 0) {
    ClusterProducer producer(ring, WholeBlock());
    for (u32 slot = 0; slot < run.count && !EndsAt(run, slot); ++slot) {
      u8* const mine = producer.Acquire();
      if (mine == nullptr) break;
      Fill(run, kCopies ? mine : producer.There(mine), queue, slot, 0, run.Vectors());
      if constexpr (kCopies) {
        producer.CommitCopy();
      } else {
        producer.CommitStores();
      }
    }
    producer.Close();
    return;
  }
  ClusterConsumer consumer(ring, WholeBlock());
  for (u32 slot = 0; slot < run.count && slot != run.consumer_ends_at; ++slot) {
    const u8* const at = consumer.Acquire();
    if (at == nullptr) break;
    Check(run, at, queue, queue, slot, 0, run.Vectors());
    consumer.Release();
    if (threadIdx.x == 0) run.taken[queue] = slot + 1;
  }
  consumer.Close();
}

}  // namespace tally_queue

extern "C" __global__ void pass_plain(tally_queue::Run run) { tally_queue::PassPlain(run); }
extern "C" __global__ void pass_bulk_1(tally_queue::Run run) {
  extern __shared__ __align__(128) unsigned char shared[];
  tally_queue::PassBulk<1>(run, shared);
}
extern "C" __global__ void pass_bulk_2(tally_queue::Run run) {
  extern __shared__ __align__(128) unsigned char shared[];
  tally_queue::PassBulk<2>(run, shared);
}
extern "C" __global__ void pass_bulk_4(tally_queue::Run run) {
  extern __shared__ __align__(128) unsigned char shared[];
  tally_queue::PassBulk<4>(run, shared);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) pass_cluster_copies(tally_queue::Run run) {
  extern __shared__ __align__(128) unsigned char shared[];
  tally_queue::PassCluster<true>(run, shared);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) pass_cluster_stores(tally_queue::Run run) {
  extern __shared__ __align__(128) unsigned char shared[];
  tally_queue::PassCluster<false>(run, shared);
}
