// Queues between blocks of one kernel: rings of `depth` slots of `slot_bytes`, one producer, filled and read in place.
//
//   form             slots are in              ends                                  needs
//   plain            global memory (L2)        RingProducer, RingConsumer            sm_70
//   bulk copies      global memory (L2)        BulkProducer, RingConsumer with Get   sm_90
//   cluster          consumer's shared memory  ClusterProducer, ClusterConsumer      sm_90; cluster_queue.cuh
//
// For nvcc and NVRTC. An end belongs to a Group: threads of one block that make each call together ("collective");
// calls "of the leader" are made by one thread of it. All blocks of a queue must be on the GPU at once: a cooperative
// launch, or a cluster. A slot is handed over by release and acquire: what the producer's group wrote before Commit is
// what the consumer's group reads after Acquire; what that group read before Release is not overwritten before it.
//
// Abort: a word that host and device see, zero at first. Once it is not zero every wait ends, and Acquire returns null
// to the whole group; what slots hold is then undefined, and the end is not used further, except for Close. Whoever
// cannot go on calls Abort; a host that has waited long enough writes the word itself. Null: nobody ever aborts.
//
// Source: queues of Kitsune (section on inter-CTA queues); orders from the memory consistency model and the proxies of
// PTX ISA 8.5. README.md has an example and what is not there.
#pragma once

namespace tally_queue {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 kWordsPerLine = 32;  // 128 bytes: the words of two ends share no line
constexpr u32 kPollsPerLook = 64;  // at the ring between two looks at the abort word

// Threads `first` to `first + count - 1` of a block; whole warps. `barrier` is a named barrier of theirs alone (0 is
// __syncthreads'). The leader is thread `first`.
struct Group {
  u32 barrier, first, count;

  __device__ bool IsLeader() const { return threadIdx.x == first; }
  __device__ void Sync() const { asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory"); }
  // Sync. Was it true for all?
  __device__ bool All(bool mine) const {
    u32 all;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.and.pred q, %2, %3, p;\nselp.u32 %0, 1, 0, q;\n}"
        : "=r"(all)
        : "r"(static_cast<u32>(mine)), "r"(barrier), "r"(count)
        : "memory");
    return all != 0;
  }
};

// --- words, barriers, copies: the instructions ----------------------------------------------------------------------

__device__ inline u32 LoadAcquire(const u32* at) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ inline void StoreRelease(u32* at, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ inline void Abort(u32* abort) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(abort), "r"(1) : "memory");
}
__device__ inline bool IsAborted(const u32* abort) {
  if (abort == nullptr) return false;
  u32 value;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(abort) : "memory");
  return value != 0;
}
// False: aborted.
template <typename Ready>
__device__ inline bool Await(const u32* abort, Ready ready) {
  for (u32 polls = 1; !ready(); ++polls) {
    if (polls % kPollsPerLook == 0 && IsAborted(abort)) return false;
  }
  return true;
}

__device__ inline u32 SharedAddress(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }
// By one thread, for barriers in its own shared memory, before a barrier of all who use it.
__device__ inline void InitBarrier(u64* barrier, u32 arrivals) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(SharedAddress(barrier)),
      "r"(arrivals)
      : "memory");
}
// Has the phase of this parity ended? May take a while to say no. In its cluster whoever sees it sees what was
// released.
__device__ inline bool HasEnded(const u64* barrier, u32 parity) {
  u32 ended;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, "
      "p;\n}"
      : "=r"(ended)
      : "r"(SharedAddress(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}
// Each thread that wrote shared memory which a bulk copy is to read, before Sync or Commit: copies are another proxy.
__device__ inline void PublishShared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- rings in global memory -----------------------------------------------------------------------------------------

// The same values at each end. `consumers` that each read every slot; a slot is free when all have released it.
struct Ring {
  u8* slots;         // depth * slot_bytes; 16-byte aligned, slot_bytes a multiple of 16
  u32* words;        // kWordsPerLine * (1 + consumers), zero before each launch: slots written; released, per consumer
  const u32* abort;  // may be null
  u32 depth, slot_bytes, consumers;
};

class RingProducer {
 public:
  __device__ RingProducer(const Ring& ring, Group group) : ring_(ring), group_(group) {}

  // Collective. The next slot, once it is free: each thread may write all of it. Null: aborted.
  __device__ u8* Acquire() {
    const bool is_mine = !group_.IsLeader() || AwaitFree();
    return group_.All(is_mine) ? ring_.slots + static_cast<u64>(slot_) * ring_.slot_bytes : nullptr;
  }
  // Collective. Hands over the slot that was acquired last.
  __device__ void Commit() {
    group_.Sync();
    Advance();
    if (group_.IsLeader()) Publish(next_);
  }

 protected:
  // Of the leader: as far as it has seen.
  __device__ bool IsFree() const { return next_ - released_ < ring_.depth; }
  __device__ bool Look() {
    // The consumer that is farthest behind counts; none is by more than depth.
    u32 behind = 0;
    for (u32 k = 0; k < ring_.consumers; ++k) {
      const u32 one = next_ - LoadAcquire(ring_.words + (1 + k) * kWordsPerLine);
      behind = one > behind ? one : behind;
    }
    released_ = next_ - behind;
    return IsFree();
  }
  __device__ void Publish(u32 count) const { StoreRelease(ring_.words, count); }
  __device__ void Advance() {
    ++next_;
    slot_ = slot_ + 1 == ring_.depth ? 0 : slot_ + 1;
  }

  Ring ring_;
  Group group_;
  u32 next_ = 0;  // slots committed, modulo 2^32

 private:
  __device__ bool AwaitFree() {
    return IsFree() || Await(ring_.abort, [this] { return Look(); });
  }

  u32 slot_ = 0;      // next_ modulo depth, also where 2^32 is no multiple of it
  u32 released_ = 0;  // of the leader: by all consumers, as seen last
};

// Slots are made in shared memory and copied by the copy engine, in kPuts pieces each.
template <int kPuts>
class BulkProducer : public RingProducer {
 public:
  using RingProducer::RingProducer;

  // As RingProducer's, for Put. What was committed is published first if it must wait.
  __device__ u8* Acquire() {
    if (group_.IsLeader() && !IsFree() && !Look()) Flush();
    return RingProducer::Acquire();
  }
  // Of the leader, exactly kPuts times a slot: begins to copy shared memory (after PublishShared and Sync) to the slot,
  // in multiples of 16 bytes. The source stays unchanged until AwaitPutsRead.
  __device__ void Put(u8* to, const void* from, u32 bytes) const {
    asm volatile(
        "fence.proxy.async;\ncp.async.bulk.global.shared::cta.bulk_group [%0], [%1], "
        "%2;\ncp.async.bulk.commit_group;" ::"l"(to),
        "r"(SharedAddress(from)), "r"(bytes)
        : "memory");
  }
  // Of the leader: all that it Put was read, but for the last kButLast pieces.
  template <int kButLast>
  __device__ void AwaitPutsRead() const {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kButLast) : "memory");
  }
  // Collective. Hands over the slot that was acquired last. The consumers see it when the next one is committed, when
  // Acquire has to wait, or at Flush: so copies of two slots overlap.
  __device__ void Commit() {
    Advance();
    if (!group_.IsLeader()) return;
    AwaitPuts<kPuts>();
    Publish(next_ - 1);
  }
  // Of the leader: after the last Commit, and before its block ends, also after an abort.
  __device__ void Flush() const {
    AwaitPuts<0>();
    Publish(next_);
  }

 private:
  // They are written, all but the last kButLast, and may be published.
  template <int kButLast>
  __device__ void AwaitPuts() const {
    asm volatile("cp.async.bulk.wait_group %0;\nfence.proxy.async;" ::"n"(kButLast) : "memory");
  }
};

class RingConsumer {
 public:
  // `index`: which of the ring's consumers.
  __device__ RingConsumer(const Ring& ring, u32 index, Group group)
      : ring_(ring), group_(group), released_(ring.words + (1 + index) * kWordsPerLine) {}

  // Collective. The next slot, once it is written; null: aborted. Up to `depth` may be held at once.
  __device__ const u8* Acquire() {
    const bool is_mine = !group_.IsLeader() || AwaitWritten();
    if (!group_.All(is_mine)) return nullptr;
    const u8* const slot = ring_.slots + static_cast<u64>(slot_) * ring_.slot_bytes;
    ++acquired_;
    slot_ = slot_ + 1 == ring_.depth ? 0 : slot_ + 1;
    return slot;
  }
  // Collective. The producer may overwrite the slot that has been held longest. What was begun by Get must have
  // arrived.
  __device__ void Release() {
    group_.Sync();
    ++given_back_;
    if (group_.IsLeader()) StoreRelease(released_, given_back_);
  }
  // Of the leader: begins a copy from the slot to shared memory, multiples of 16 bytes. `barrier` (InitBarrier with one
  // arrival; its phase has no other) ends its phase when all is there: wait with HasEnded. A block ends only after
  // that.
  __device__ void Get(void* to, const u8* from, u32 bytes, u64* barrier) const {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2;\nfence.proxy.async;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
        : "memory");
  }

 private:
  __device__ bool AwaitWritten() {
    if (written_ != acquired_) return true;
    return Await(ring_.abort, [this] {
      written_ = LoadAcquire(ring_.words);
      return written_ != acquired_;
    });
  }

  Ring ring_;
  Group group_;
  u32* released_;
  u32 acquired_ = 0, given_back_ = 0;  // slots, modulo 2^32
  u32 slot_ = 0;                       // acquired_ modulo depth
  u32 written_ = 0;                    // of the leader: as seen last
};

}  // namespace tally_queue
