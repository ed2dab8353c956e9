// Grids beside one another: forward progress, priorities, cancelling, reuse.
#include <malloc.h>

#include <chrono>
#include <thread>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

// Spins until *p is not zero, then adds one to p[1].
std::string SpinText() {
  return PtxHeader() + R"(.visible .entry spin(.param .u64 p){.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
ld.param.u64 %rd1,[p];
L: ld.volatile.global.u32 %r1,[%rd1]; setp.eq.u32 %p1,%r1,0; @%p1 bra L;
atom.global.add.u32 %r2,[%rd1+4],1; ret;}
.visible .entry release(.param .u64 p){.reg .b64 %rd<4>; ld.param.u64 %rd1,[p]; st.global.u32 [%rd1],1; ret;}
.visible .entry count(.param .u64 p){.reg .b64 %rd<4>; .reg .b32 %r<2>; ld.param.u64 %rd1,[p]; atom.global.add.u32 %r1,[%rd1],1; ret;}
// The last block lets all others go: they must be resident together, or take turns.
.visible .entry last(.param .u64 p){.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
ld.param.u64 %rd1,[p]; mov.u32 %r1,%ctaid.x; mov.u32 %r2,%nctaid.x; sub.u32 %r2,%r2,1; setp.ne.u32 %p1,%r1,%r2; @%p1 bra L;
st.global.u32 [%rd1],1; ret;
L: nanosleep.u32 100; ld.acquire.gpu.global.u32 %r1,[%rd1]; setp.eq.u32 %p1,%r1,0; @%p1 bra L; ret;}
)";
}

TEST(MachineTest, TwoGridsMakeProgressTogether) {
  Launcher launcher({.num_workers = 1});
  auto program = launcher.Load({SpinText()});
  ASSERT_TRUE(program);
  uint64_t flag = launcher.Upload(std::vector<uint32_t>(4));
  auto spinning = launcher.Submit(launcher.Request(program, "spin", {3}, {64}, flag));
  EXPECT_FALSE(launcher.Run(launcher.Request(program, "release", {1}, {1}, flag)));
  spinning->Wait();
  EXPECT_FALSE(spinning->fault);
  EXPECT_EQ(launcher.Download<uint32_t>(flag, 2)[1], 192u);
}

TEST(MachineTest, TheHostReleasesASpinningGrid) {
  Launcher launcher;
  auto program = launcher.Load({SpinText()});
  ASSERT_TRUE(program);
  uint64_t flag = launcher.Upload(std::vector<uint32_t>(4));
  auto spinning = launcher.Submit(launcher.Request(program, "spin", {1}, {32}, flag));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  __atomic_store_n(reinterpret_cast<uint32_t*>(flag), 1, __ATOMIC_RELEASE);
  spinning->Wait();
  EXPECT_FALSE(spinning->fault);
}

TEST(MachineTest, BlocksWaitForALaterBlock) {
  Launcher launcher({.num_workers = 1});
  auto program = launcher.Load({SpinText()});
  ASSERT_TRUE(program);
  uint64_t flag = launcher.Upload(std::vector<uint32_t>(4));
  EXPECT_FALSE(launcher.Run(launcher.Request(program, "last", {24}, {64}, flag)));
}

TEST(MachineTest, UrgentGridsGoFirst) {
  Launcher launcher({.num_workers = 1});
  auto program = launcher.Load({SpinText()});
  ASSERT_TRUE(program);
  uint64_t gate = launcher.Upload(std::vector<uint32_t>(4));
  uint64_t counter = launcher.Upload(std::vector<uint32_t>(4));
  std::mutex mutex;
  std::vector<int> order;
  auto submit = [&](int priority) {
    LaunchRequest request = launcher.Request(program, "count", {200}, {32}, counter);
    request.priority = priority;
    launcher.machine().Submit(std::move(request), [&, priority](const std::optional<Fault>&) {
      std::lock_guard lock(mutex);
      order.push_back(priority);
    });
  };
  // The only worker reports the gate's end; both grids are submitted by then, the urgent one last.
  launcher.machine().Submit(launcher.Request(program, "count", {1}, {1}, gate), [&](const std::optional<Fault>&) {
    submit(0);
    submit(-5);
  });
  launcher.machine().WaitIdle();
  EXPECT_EQ(order, (std::vector<int>{-5, 0}));
  EXPECT_EQ(launcher.Download<uint32_t>(counter, 1)[0], 2u * 200 * 32);
}

TEST(MachineTest, CancelEndsASpinningGrid) {
  Launcher launcher;
  auto program = launcher.Load({SpinText()});
  ASSERT_TRUE(program);
  uint64_t flag = launcher.Upload(std::vector<uint32_t>(4));
  uint64_t id = 0;
  auto first = launcher.Submit(launcher.Request(program, "spin", {1}, {32}, flag), &id);
  auto second = launcher.Submit(launcher.Request(program, "spin", {100}, {32}, flag));
  launcher.machine().Cancel(id);
  first->Wait();
  EXPECT_EQ(first->fault->cu_result, kFaultCancelled);
  EXPECT_FALSE(second->is_done);
  launcher.machine().CancelAll(&launcher.memory());
  second->Wait();
  EXPECT_EQ(second->fault->cu_result, kFaultCancelled);
}

TEST(MachineTest, ThousandsOfLaunchesDoNotGrowMemory) {
  Launcher launcher({.num_workers = 2});
  auto program = launcher.Load({SpinText()});
  ASSERT_TRUE(program);
  uint64_t counter = launcher.Upload(std::vector<uint32_t>(4));
  auto launch = [&](int times) {
    for (int k = 0; k < times; ++k) ASSERT_FALSE(launcher.Run(launcher.Request(program, "count", {2}, {64}, counter)));
  };
  launch(500);
  size_t before = mallinfo2().uordblks;
  launch(10'000);
  size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + 64 * 1024);
  EXPECT_EQ(launcher.Download<uint32_t>(counter, 1)[0], 10'500u * 128);
}

TEST(MachineTest, ManyBlocksInThreeDimensions) {
  Launcher launcher;
  auto program = launcher.Load({PtxHeader() + R"(.visible .entry k(.param .u64 p){.reg .b64 %rd<4>; .reg .b32 %r<20>;
ld.param.u64 %rd1,[p];
mov.u32 %r1,%ctaid.x; mov.u32 %r2,%ctaid.y; mov.u32 %r3,%ctaid.z; mov.u32 %r4,%nctaid.x; mov.u32 %r5,%nctaid.y;
mad.lo.u32 %r6,%r3,%r5,%r2; mad.lo.u32 %r6,%r6,%r4,%r1;
mov.u32 %r7,%tid.x; mov.u32 %r8,%tid.y; mov.u32 %r9,%tid.z; mov.u32 %r10,%ntid.x; mov.u32 %r11,%ntid.y; mov.u32 %r12,%ntid.z;
mad.lo.u32 %r13,%r9,%r11,%r8; mad.lo.u32 %r13,%r13,%r10,%r7;
mul.lo.u32 %r14,%r10,%r11; mul.lo.u32 %r14,%r14,%r12; mad.lo.u32 %r15,%r6,%r14,%r13;
mul.wide.u32 %rd2,%r15,4; add.u64 %rd3,%rd1,%rd2; st.global.u32 [%rd3],%r15; ret;})"});
  ASSERT_TRUE(program);
  constexpr uint32_t kThreads = 5 * 4 * 3 * 7 * 3 * 2;
  uint64_t out = launcher.Upload(std::vector<uint32_t>(kThreads, ~0u));
  EXPECT_FALSE(launcher.Run(launcher.Request(program, "k", {5, 4, 3}, {7, 3, 2}, out)));
  auto values = launcher.Download<uint32_t>(out, kThreads);
  for (uint32_t k = 0; k < kThreads; ++k) ASSERT_EQ(values[k], k);
}

}  // namespace
}  // namespace tally::sim_driver
