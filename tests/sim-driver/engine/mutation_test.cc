// Damaged programs: whatever still compiles must end, fault, or be cancelled; never take the process down.
#include <chrono>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

const char* const kBodies[] = {
    "mad.lo.u32 %r5,%a,%b,%c; shl.b32 %r6,%r5,3; setp.lt.s32 %p1|%p2,%r6,%b; @%p1 bra L; add.u32 %r5,%r5,7; bar.sync "
    "0; L: "
    "shfl.sync.bfly.b32 %r7|%p3,%r5,1,31,-1; vote.sync.ballot.b32 %r8,%p3,-1; lop3.b32 %d,%r7,%r8,%r5,0x96;",
    ".local .align 8 .b8 l[32]; .shared .align 8 .b8 s[512]; mov.u64 %rd7,l; cvta.local.u64 %rd8,%rd7; st.u32 "
    "[%rd8+8],%a; "
    "ld.local.v2.u32 {%r5,%r6},[%rd7+8]; mov.u32 %r7,s; and.b32 %r8,%r3,63; shl.b32 %r9,%r8,2; add.u32 %r7,%r7,%r9; "
    "st.shared.u32 [%r7],%r5; bar.sync 0; ld.shared.u32 %d,[%r7]; atom.shared.add.u32 %r10,[%r7],%b;",
    "mov.u32 %r5,0; L: add.u32 %r5,%r5,1; and.b32 %r6,%a,15; setp.lt.u32 %p1,%r5,%r6; @%p1 bra L; ts: .branchtargets "
    "A,B; "
    "and.b32 %r7,%b,1; brx.idx %r7,ts; A: cvt.rn.f32.u32 %f1,%r5; ex2.approx.f32 %f2,%f1; cvt.rzi.u32.f32 %d,%f2; bra "
    "C; "
    "B: mov.b64 %rd7,{%a,%b}; popc.b64 %d,%rd7; C: atom.global.max.u32 %r8,[%rd4],%d;"};

TEST(MutationTest, DamagedKernelsDoNotBringTheProcessDown) {
  Launcher launcher({.num_workers = 2, .slice_instructions = 4096});
  uint64_t random = 0x9e3779b97f4a7c15;
  auto next = [&] { return random ^= random << 13, random ^= random >> 7, random ^= random << 17; };
  std::vector<uint64_t> buffers;
  for (int k = 0; k < 4; ++k)
    buffers.push_back(launcher.Upload(std::vector<uint32_t>(128, static_cast<uint32_t>(next()))));
  int ran = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string text = ElementKernel("u32", "b32", "u32", "b32", kBodies[round % 3]);
    size_t header = PtxHeader().size();
    for (uint64_t n = 1 + next() % 3; n > 0; --n) {
      size_t at = header + next() % (text.size() - header);
      size_t from = header + next() % (text.size() - header);
      switch (next() % 4) {
        case 0:
          text.erase(at, 1 + next() % 6);
          break;
        case 1:
          text[at] = text[from];
          break;
        case 2:
          if (text[at] >= '0' && text[at] <= '9') text[at] = static_cast<char>('0' + next() % 10);
          break;
        default:
          text.insert(at, text.substr(from, next() % 12));
      }
    }
    std::string_view view = text;
    auto program = CompileProgram({&view, 1});
    if (!program || !(*program)->FindKernel("k") || (*program)->kernels()[0].parameters.size() != 4) continue;
    bool has_pointers = true;
    for (const KernelParameter& parameter : (*program)->kernels()[0].parameters)
      has_pointers &= parameter.size_bytes == 8;
    if (!has_pointers) continue;
    ++ran;
    uint64_t id = 0;
    auto outcome = launcher.Submit(
        launcher.Request(*program, "k", {2}, {64}, buffers[0], buffers[1], buffers[2], buffers[3]), &id);
    std::unique_lock lock(outcome->mutex);
    if (!outcome->changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return outcome->is_done; })) {
      lock.unlock();
      launcher.machine().Cancel(id);
      outcome->Wait();
    }
  }
  EXPECT_GT(ran, 100);
}

}  // namespace
}  // namespace tally::sim_driver
