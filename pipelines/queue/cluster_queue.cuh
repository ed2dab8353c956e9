// Queues inside a cluster of blocks (queue.cuh says what all queues share): slots are in the consumer's shared memory,
// and so is what it waits for; the producer waits in its own.
#pragma once

#include "pipelines/queue/queue.cuh"

namespace tally_queue {

// The same place in the shared memory of another block of the cluster.
__device__ inline u32 InBlock(u32 shared, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}
__device__ inline void ArriveAt(u32 there) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
__device__ inline void ArriveAndExpect(u32 there, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(there), "r"(bytes)
               : "memory");
}
__device__ inline void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// In shared memory, at the same offsets in both blocks. The producer's own slots are where a slot is made before it is
// copied over; with CommitStores it may have none.
struct ClusterRing {
  u8* slots;      // depth * slot_bytes; 16-byte aligned, slot_bytes a multiple of 16 and below 2^20
  u64* barriers;  // 2 * depth + 1: full ones (the consumer's), free ones (the producer's), how many were committed
  const u32* abort;
  u32 depth, slot_bytes;
  u32 peer;  // rank in the cluster of the other end

  // By one thread of each block, then SyncCluster by all threads of the cluster.
  __device__ void Init() const {
    for (u32 k = 0; k < 2 * depth; ++k) InitBarrier(barriers + k, 1);
    barriers[2 * depth] = 0;
  }
};

class ClusterProducer {
 public:
  __device__ ClusterProducer(const ClusterRing& ring, Group group) : ring_(ring), group_(group) {}

  // Collective. The next slot in the own shared memory, to be filled and then handed over by CommitCopy; null: aborted.
  __device__ u8* Acquire() {
    const u64* const is_free = ring_.barriers + ring_.depth + slot_;
    const bool is_mine = !group_.IsLeader() || Await(ring_.abort, [&] { return HasEnded(is_free, lap_ ^ 1); });
    return group_.All(is_mine) ? ring_.slots + static_cast<u64>(slot_) * ring_.slot_bytes : nullptr;
  }
  // Where that slot is in the consumer: for plain stores, and CommitStores.
  __device__ u8* There(u8* slot) const {
    u64 there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(slot), "r"(ring_.peer));
    return reinterpret_cast<u8*>(there);
  }
  // Collective. Hands over what was stored There.
  __device__ void CommitStores() {
    group_.Sync();
    if (group_.IsLeader()) ArriveAt(FullThere());
    Advance();
  }
  // Collective. Copies the own slot over. It is free again when Acquire returns it.
  __device__ void CommitCopy() {
    PublishShared();
    group_.Sync();
    if (group_.IsLeader()) {
      const u32 slot = SharedAddress(ring_.slots) + slot_ * ring_.slot_bytes;
      ArriveAndExpect(FullThere(), ring_.slot_bytes);
      asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       InBlock(slot, ring_.peer)),
                   "r"(slot), "r"(ring_.slot_bytes), "r"(FullThere())
                   : "memory");
    }
    Advance();
  }
  // By all threads of the block, at the end, also after an abort: shared memory must outlive what is on its way. The
  // consumer's block calls its own.
  __device__ void Close() const {
    if (group_.IsLeader()) {
      *reinterpret_cast<u64*>(There(reinterpret_cast<u8*>(ring_.barriers + 2 * ring_.depth))) = committed_;
    }
    SyncCluster();
    SyncCluster();
  }

 private:
  __device__ u32 FullThere() const { return InBlock(SharedAddress(ring_.barriers + slot_), ring_.peer); }
  __device__ void Advance() {
    ++committed_;
    if (++slot_ != ring_.depth) return;
    slot_ = 0;
    lap_ ^= 1;
  }

  ClusterRing ring_;
  Group group_;
  u32 slot_ = 0, lap_ = 0;  // lap_: parity of the phases of this time around
  u64 committed_ = 0;
};

class ClusterConsumer {
 public:
  __device__ ClusterConsumer(const ClusterRing& ring, Group group) : ring_(ring), group_(group) {}

  // Collective. The next slot, once it is full; null: aborted.
  __device__ const u8* Acquire() {
    const bool is_mine = !group_.IsLeader() || Await(ring_.abort, [this] { return IsFull(); });
    return group_.All(is_mine) ? ring_.slots + static_cast<u64>(slot_) * ring_.slot_bytes : nullptr;
  }
  // Collective. The producer may overwrite the slot.
  __device__ void Release() {
    group_.Sync();
    if (group_.IsLeader()) ArriveAt(InBlock(SharedAddress(ring_.barriers + ring_.depth + slot_), ring_.peer));
    Advance();
  }
  // By all threads of the block, at the end, also after an abort.
  __device__ void Close() {
    SyncCluster();
    // Copies that nobody took arrive all the same, if late.
    if (group_.IsLeader()) {
      for (const u64 committed = ring_.barriers[2 * ring_.depth]; taken_ != committed; Advance()) {
        while (!IsFull()) continue;
      }
    }
    SyncCluster();
  }

 private:
  __device__ bool IsFull() const { return HasEnded(ring_.barriers + slot_, lap_); }
  __device__ void Advance() {
    ++taken_;
    if (++slot_ != ring_.depth) return;
    slot_ = 0;
    lap_ ^= 1;
  }

  ClusterRing ring_;
  Group group_;
  u32 slot_ = 0, lap_ = 0;
  u64 taken_ = 0;
};

}  // namespace tally_queue
