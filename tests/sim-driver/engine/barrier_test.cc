// Barriers of blocks and clusters: who completes them, and what is no barrier at all.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

std::string KernelOf(const std::string& body) {
  return PtxHeader() + ".visible .entry k(.param .u64 p){.reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .pred %p<4>;\n" +
         "ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; mov.u32 %r2,%ctaid.x;\n" + body + "\nret;}\n";
}

std::optional<Fault> RunBody(Launcher& launcher, const std::string& body, uint64_t p, Dim3 grid, Dim3 block,
                             Dim3 cluster = {1, 1, 1}) {
  auto program = launcher.Load({KernelOf(body)});
  if (!program) return std::nullopt;
  LaunchRequest request = launcher.Request(program, "k", grid, block, p);
  request.cluster = cluster;
  return launcher.Run(std::move(request));
}

// Threads that have exited are not waited for: here they exit when all others have arrived, and nobody comes any more.
TEST(BarrierTest, ExitingThreadsCompleteTheBarrierOfTheirCluster) {
  const std::string body = R"(setp.ne.u32 %p1,%r2,0; @%p1 bra LEAVE;
barrier.cluster.arrive.aligned; st.volatile.global.u32 [%rd1],1; barrier.cluster.wait.aligned; st.global.u32 [%rd1+4],7; ret;
LEAVE: ld.volatile.global.u32 %r3,[%rd1]; setp.eq.u32 %p2,%r3,0; @%p2 bra LEAVE;)";
  for (const uint32_t threads : {32u, 96u}) {
    Launcher launcher;
    const uint64_t p = launcher.Upload(std::vector<uint32_t>(4));
    const auto fault = RunBody(launcher, body, p, {4}, {threads}, {4, 1, 1});
    EXPECT_FALSE(fault) << fault->message;
    EXPECT_EQ(launcher.Download<uint32_t>(p, 2), (std::vector<uint32_t>{1, 7}));
  }
}

TEST(BarrierTest, ExitingThreadsCompleteTheBarrierOfTheirBlock) {
  // The second warp leaves when it can see that all lanes of the first but the last wait.
  const std::string body = R"(setp.gt.u32 %p1,%r1,31; @%p1 bra LEAVE;
atom.global.add.u32 %r4,[%rd1],1; bar.sync 0; st.global.u32 [%rd1+4],7; ret;
LEAVE: ld.volatile.global.u32 %r3,[%rd1]; setp.lt.u32 %p2,%r3,32; @%p2 bra LEAVE;
mov.u32 %r5,0; SPIN: add.u32 %r5,%r5,1; setp.lt.u32 %p3,%r5,20000; @%p3 bra SPIN;)";
  Launcher launcher;
  const uint64_t p = launcher.Upload(std::vector<uint32_t>(4));
  const auto fault = RunBody(launcher, body, p, {1}, {64});
  EXPECT_FALSE(fault) << fault->message;
  EXPECT_EQ(launcher.Download<uint32_t>(p, 2), (std::vector<uint32_t>{32, 7}));
}

TEST(BarrierTest, WhatIsNoBarrierIsAFault) {
  const auto expect = [](const std::string& body, const std::string& message) {
    Launcher launcher;
    const auto fault = RunBody(launcher, body, 0, {1}, {64});
    ASSERT_TRUE(fault) << body;
    EXPECT_EQ(fault->cu_result, kFaultIllegalInstruction) << body;
    EXPECT_NE(fault->message.find(message), std::string::npos) << fault->message;
  };
  expect("bar.sync 1, 48;", "a barrier for 48 threads, which is not whole warps");
  expect("mov.u32 %r3,0; bar.sync 1, %r3;", "a barrier for 0 threads");
  expect("mov.u32 %r3,16; bar.sync %r3;", "barrier 16 of 16");
  expect("and.b32 %r3,%r1,1; barrier.sync %r3;", "name different barriers or counts");
  expect("and.b32 %r3,%r1,32; add.u32 %r3,%r3,96; bar.sync 1, %r3;", "is waited for with");
}

}  // namespace
}  // namespace tally::sim_driver
