// Shuffles, votes, matches, named barriers.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

std::vector<uint32_t> RunBody(const std::string& body, uint32_t threads = 32) {
  Launcher launcher;
  auto program =
      launcher.Load({PtxHeader() +
                     ".visible .entry k(.param .u64 p){.reg .b64 %rd<10>; .reg .b32 %r<20>; .reg .pred %p<10>; .shared "
                     ".align 4 .b8 s[4096];\nld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; mov.u32 %r2,0;\n" +
                     body + "\nmul.wide.u32 %rd2,%r1,4; add.u64 %rd3,%rd1,%rd2; st.global.u32 [%rd3],%r2; ret;}"});
  if (!program) return {};
  uint64_t out = launcher.Upload(std::vector<uint32_t>(threads));
  auto fault = launcher.Run(launcher.Request(program, "k", {1}, {threads}, out));
  EXPECT_FALSE(fault) << fault->message;
  return launcher.Download<uint32_t>(out, threads);
}

TEST(WarpTest, Shuffles) {
  auto down = RunBody("shfl.sync.down.b32 %r2|%p1,%r1,3,31,-1; @!%p1 add.u32 %r2,%r2,1000;");
  auto up = RunBody("shfl.sync.up.b32 %r2|%p1,%r1,5,0,-1; @!%p1 add.u32 %r2,%r2,1000;");
  auto butterfly = RunBody("shfl.sync.bfly.b32 %r2,%r1,6,31,-1;");
  auto index = RunBody("add.u32 %r3,%r1,1; shfl.sync.idx.b32 %r2,%r1,%r3,0x181f,-1;");  // segments of 8
  for (uint32_t t = 0; t < 32; ++t) {
    EXPECT_EQ(down[t], t + 3 < 32 ? t + 3 : t + 1000) << t;
    EXPECT_EQ(up[t], t >= 5 ? t - 5 : t + 1000) << t;
    EXPECT_EQ(butterfly[t], t ^ 6) << t;
    EXPECT_EQ(index[t], (t & 24) | ((t + 1) & 7)) << t;
  }
}

TEST(WarpTest, ShuffleWaitsForLanesThatComeAnotherWay) {
  // Half of the warp arrives later, after a loop.
  auto out = RunBody(
      "mov.u32 %r3,%r1; setp.lt.u32 %p1,%r1,16; @%p1 bra M; mov.u32 %r4,0; L: add.u32 %r4,%r4,1; setp.lt.u32 "
      "%p2,%r4,%r1; @%p2 bra L; add.u32 %r3,%r3,100; M: shfl.sync.idx.b32 %r2,%r3,31,31,-1;");
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], 131u) << t;
}

TEST(WarpTest, ExitedLanesAreNotWaitedFor) {
  auto out = RunBody("setp.lt.u32 %p1,%r1,8; @%p1 exit; mov.u32 %r3,1; vote.sync.ballot.b32 %r2,1,-1;");
  for (uint32_t t = 8; t < 32; ++t) EXPECT_EQ(out[t], 0xffffff00u);
}

TEST(WarpTest, VotesMatchesReductions) {
  auto ballot = RunBody(
      "setp.gt.u32 %p1,%r1,29; vote.sync.ballot.b32 %r2,%p1,-1; vote.sync.any.pred %p2,%p1,-1; vote.sync.all.pred "
      "%p3,%p1,-1; @!%p2 mov.u32 %r2,1; @%p3 mov.u32 %r2,2;");
  auto match = RunBody("shr.u32 %r3,%r1,2; match.any.sync.b32 %r2,%r3,-1;");
  auto all = RunBody("mov.u32 %r3,7; match.all.sync.b32 %r2|%p1,%r3,-1; @!%p1 mov.u32 %r2,0;");
  auto sum = RunBody("redux.sync.add.s32 %r2,%r1,-1; redux.sync.max.u32 %r3,%r1,-1; mad.lo.u32 %r2,%r3,1000,%r2;");
  auto elected = RunBody("elect.sync %r2|%p1,-1; @%p1 add.u32 %r2,%r2,50;");
  for (uint32_t t = 0; t < 32; ++t) {
    EXPECT_EQ(ballot[t], 0xc0000000u);
    EXPECT_EQ(match[t], 0xfu << (t & ~3u)) << t;
    EXPECT_EQ(all[t], ~0u);
    EXPECT_EQ(sum[t], 31496u);
    EXPECT_EQ(elected[t], t == 0 ? 50u : 0u);
  }
}

TEST(WarpTest, NamedBarriersBetweenProducersAndConsumers) {
  // Warps 0 and 1 produce and only arrive; warps 2 and 3 wait for all 128.
  auto out = RunBody(
      "mov.u32 %r3,s; shl.b32 %r4,%r1,2; add.u32 %r3,%r3,%r4; setp.ge.u32 %p1,%r1,64; @%p1 bra C; st.shared.u32 "
      "[%r3],%r1; bar.arrive 3,128; bra.uni E; C: bar.sync 3,128; ld.shared.u32 %r2,[%r3+-256]; E:",
      128);
  for (uint32_t t = 0; t < 128; ++t) EXPECT_EQ(out[t], t < 64 ? 0 : t - 64) << t;
}

TEST(WarpTest, BarrierReductions) {
  auto out = RunBody(
      "setp.lt.u32 %p1,%r1,50; barrier.red.popc.u32 %r2,0,%p1; bar.red.or.pred %p2,0,%p1; bar.red.and.pred %p3,0,%p1; "
      "@%p2 add.u32 %r2,%r2,100; @%p3 add.u32 %r2,%r2,1000;",
      100);
  for (uint32_t t = 0; t < 100; ++t) EXPECT_EQ(out[t], 150u) << t;
}

TEST(WarpTest, ExitedThreadsDoNotHoldUpBarriers) {
  auto out = RunBody("setp.ge.u32 %p1,%r1,70; @%p1 exit; bar.sync 0; mov.u32 %r2,1; bar.sync 0;", 128);
  for (uint32_t t = 0; t < 128; ++t) EXPECT_EQ(out[t], t < 70 ? 1u : 0u) << t;
}

TEST(WarpTest, SpecialRegisters) {
  auto out = RunBody(
      "mov.u32 %r3,%laneid; mov.u32 %r4,%warpid; mov.u32 %r5,%lanemask_lt; popc.b32 %r5,%r5; mad.lo.u32 "
      "%r2,%r4,1000,%r3; mad.lo.u32 %r2,%r5,100000,%r2; mov.u64 %rd4,%clock64; mov.u64 %rd5,%globaltimer; setp.eq.u64 "
      "%p1,%rd5,0; @%p1 mov.u32 %r2,0;",
      64);
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], t % 32 * 100000 + t / 32 * 1000 + t % 32) << t;
}

}  // namespace
}  // namespace tally::sim_driver
