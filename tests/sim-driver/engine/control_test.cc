// Divergence and rejoining.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

// Runs `body` (%r1 = thread; result in %r2) with one block of `threads`.
std::vector<uint32_t> RunBody(const std::string& body, uint32_t threads) {
  Launcher launcher;
  auto program =
      launcher.Load({PtxHeader() +
                     ".visible .entry k(.param .u64 p){.reg .b64 %rd<10>; .reg .b32 %r<20>; .reg .pred "
                     "%p<10>;\nld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; mov.u32 %r2,0;\n" +
                     body + "\nmul.wide.u32 %rd2,%r1,4; add.u64 %rd3,%rd1,%rd2; st.global.u32 [%rd3],%r2; ret;}"});
  if (!program) return {};
  uint64_t out = launcher.Upload(std::vector<uint32_t>(threads, 0xdead));
  auto fault = launcher.Run(launcher.Request(program, "k", {1}, {threads}, out));
  EXPECT_FALSE(fault) << fault->message;
  return launcher.Download<uint32_t>(out, threads);
}

TEST(ControlTest, NestedBranchesRejoin) {
  // After all of it the whole warp is together again: activemask says so.
  auto out = RunBody(
      R"(and.b32 %r3,%r1,1; setp.eq.u32 %p1,%r3,0; @%p1 bra A; and.b32 %r4,%r1,2; setp.eq.u32 %p2,%r4,0; @%p2 bra B; add.u32 %r2,%r2,100; B: add.u32 %r2,%r2,10; bra.uni C;
A: setp.gt.u32 %p3,%r1,20; @%p3 bra D; add.u32 %r2,%r2,1000; D: add.u32 %r2,%r2,1; C: activemask.b32 %r5; setp.ne.u32 %p4,%r5,-1; @%p4 mov.u32 %r2,77777;)",
      32);
  for (uint32_t t = 0; t < 32; ++t) {
    uint32_t expected = t % 2 ? (t & 2 ? 110 : 10) : (t > 20 ? 1 : 1001);
    EXPECT_EQ(out[t], expected) << t;
  }
}

TEST(ControlTest, LoopsWithBreaksRejoin) {
  auto out = RunBody(
      R"(mov.u32 %r3,0; L: setp.ge.u32 %p1,%r3,%r1; @%p1 bra E; add.u32 %r3,%r3,1; add.u32 %r2,%r2,%r3; setp.gt.u32 %p2,%r2,50; @%p2 bra E; bra L;
E: activemask.b32 %r5; setp.ne.u32 %p4,%r5,-1; @%p4 mov.u32 %r2,77777;)",
      64);
  for (uint32_t t = 0; t < 64; ++t) {
    uint32_t sum = 0;
    for (uint32_t k = 1; k <= t && sum <= 50; ++k) sum += k;
    EXPECT_EQ(out[t], sum) << t;
  }
}

TEST(ControlTest, EarlyExitDoesNotKeepTheOthersApart) {
  auto out = RunBody(
      R"(setp.lt.u32 %p1,%r1,8; @%p1 exit; setp.lt.u32 %p2,%r1,20; @%p2 bra A; setp.eq.u32 %p3,%r1,25; @%p3 ret; add.u32 %r2,%r2,5; A: activemask.b32 %r6; add.u32 %r2,%r2,%r6;)",
      32);
  for (uint32_t t = 0; t < 32; ++t) {
    uint32_t together = ~0u & ~0xffu & ~(1u << 25);
    EXPECT_EQ(out[t], t < 8 || t == 25 ? 0xdead : (t < 20 ? 0 : 5) + together) << t;
  }
}

TEST(ControlTest, IndexedBranch) {
  auto out = RunBody(
      R"(and.b32 %r3,%r1,3; ts: .branchtargets A,B,C,D; brx.idx %r3,ts; A: mov.u32 %r2,10; bra E; B: mov.u32 %r2,11; bra E; C: mov.u32 %r2,12; bra E; D: mov.u32 %r2,13; E: activemask.b32 %r5; setp.ne.u32 %p4,%r5,-1; @%p4 mov.u32 %r2,77777;)",
      32);
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], 10 + t % 4) << t;
}

TEST(ControlTest, LaneSpinsForALaneBehindTheMeetingPoint) {
  // Lane 0 leaves the loop at once and only then sets what all others spin for.
  auto out = RunBody(
      R"(.shared .align 4 .b32 s; setp.ne.u32 %p5,%r1,0; @%p5 bra W; st.volatile.shared.u32 [s],0; W: bar.warp.sync -1;
setp.eq.u32 %p1,%r1,0; L: @%p1 bra E; ld.volatile.shared.u32 %r3,[s]; setp.eq.u32 %p2,%r3,0; @%p2 bra L; E: @%p1 st.volatile.shared.u32 [s],1; mov.u32 %r2,1;)",
      32);
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], 1u) << t;
}

TEST(ControlTest, CallsFromDivergentCode) {
  Launcher launcher;
  auto program = launcher.Load({PtxHeader() + R"(
.func (.param .b32 r) f(.param .b32 a, .param .align 8 .b8 s[16]){ .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<3>; ld.param.u32 %r1,[a]; ld.param.u64 %rd1,[s+8]; cvt.u32.u64 %r2,%rd1; setp.gt.u32 %p1,%r1,5; @%p1 bra X; add.u32 %r3,%r1,%r2; st.param.b32 [r],%r3; ret; X: mul.lo.u32 %r3,%r1,%r2; st.param.b32 [r],%r3; ret; }
.func (.reg .u32 %r) g(.reg .u32 %a, .reg .u32 %b){ sub.u32 %r,%a,%b; ret; }
.visible .entry k(.param .u64 p){ .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>; ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; and.b32 %r2,%r1,1; setp.eq.u32 %p1,%r2,0; mov.u64 %rd5,3; @%p1 bra G;
{ .param .b32 a0; .param .align 8 .b8 s0[16]; .param .b32 r0; st.param.b32 [a0],%r1; st.param.b64 [s0+8],%rd5; call.uni (r0), f, (a0, s0); ld.param.b32 %r3,[r0]; } bra.uni E;
G: call (%r3), g, (%r1, 100);
E: mul.wide.u32 %rd2,%r1,4; add.u64 %rd3,%rd1,%rd2; st.global.u32 [%rd3],%r3; ret; })"});
  ASSERT_TRUE(program);
  uint64_t out = launcher.Upload(std::vector<uint32_t>(32));
  auto fault = launcher.Run(launcher.Request(program, "k", {1}, {32}, out));
  ASSERT_FALSE(fault) << fault->message;
  auto values = launcher.Download<uint32_t>(out, 32);
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(values[t], t % 2 ? (t > 5 ? t * 3 : t + 3) : t - 100) << t;
}

// The last function of a module has an address, too; a kernel has none, nor has what lies behind the last.
TEST(ControlTest, CallsByAddress) {
  const auto call = [](const std::string& address) {
    Launcher launcher;
    auto program = launcher.Load({PtxHeader() + R"(
.func (.param .b32 r) f(.param .b32 a);
.visible .entry k(.param .u64 p){ .reg .b64 %rd<9>; .reg .b32 %r<9>; ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; mov.u64 %rd5,f; )" +
                                  address + R"(
{ .param .b32 a0; .param .b32 r0; st.param.b32 [a0],%r1; proto: .callprototype (.param .b32 _) _ (.param .b32 _); call (r0), %rd5, (a0), proto; ld.param.b32 %r3,[r0]; }
mul.wide.u32 %rd2,%r1,4; add.u64 %rd3,%rd1,%rd2; st.global.u32 [%rd3],%r3; ret; }
.func (.param .b32 r) f(.param .b32 a){ .reg .b32 %r<3>; ld.param.u32 %r1,[a]; add.u32 %r2,%r1,5; st.param.b32 [r],%r2; ret; })"});
    EXPECT_TRUE(program);
    if (!program) return -1;
    const uint64_t out = launcher.Upload(std::vector<uint32_t>(32));
    const auto fault = launcher.Run(launcher.Request(program, "k", {1}, {32}, out));
    if (fault) return fault->cu_result;
    const auto values = launcher.Download<uint32_t>(out, 32);
    for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(values[t], t + 5) << t;
    return 0;
  };
  EXPECT_EQ(call(""), 0);
  EXPECT_EQ(call("add.u64 %rd5,%rd5,16;"), kFaultInvalidPc);
  EXPECT_EQ(call("sub.u64 %rd5,%rd5,16;"), kFaultInvalidPc);
  EXPECT_EQ(call("add.u64 %rd5,%rd5,8;"), kFaultInvalidPc);
  EXPECT_EQ(call("mov.u64 %rd5,0;"), kFaultInvalidPc);
}

}  // namespace
}  // namespace tally::sim_driver
