// Waits that nobody can end are noticed, and no others; a schedule with delays finds a wait for the wrong phase.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

std::string KernelOf(const std::string& body) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n"
         ".visible .entry k(.param .u64 p){.reg .b64 %rd<4>; .reg .b32 %r<20>; .reg .pred %p<6>;\n"
         ".shared .align 8 .b64 a; .shared .align 8 .b64 b; .shared .align 16 .b8 s[64];\n"
         "ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; mov.u32 %r2,a; mov.u32 %r3,b; setp.ne.u32 %p1,%r1,0;\n" +
         body + "\nret;}\n";
}

std::optional<Fault> RunBody(const std::string& body, uint32_t threads = 64, uint64_t seed = 0, uint32_t blocks = 1) {
  Launcher launcher;
  const auto program = launcher.Load({KernelOf(body)});
  if (!program) return std::nullopt;
  EXPECT_EQ(program->kernels()[0].unsupported, "");
  LaunchRequest request =
      launcher.Request(program, "k", {blocks}, {threads}, launcher.Upload(std::vector<uint32_t>(1024)));
  request.schedule_seed = seed;
  return launcher.Run(std::move(request));
}

constexpr const char* kInit =
    "@%p1 bra I; mbarrier.init.shared::cta.b64 [%r2],1; mbarrier.init.shared::cta.b64 [%r3],1; I: bar.sync 0;\n";

void ExpectDeadlock(const std::optional<Fault>& fault, const std::string& place) {
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultLaunchTimeout) << fault->message;
  EXPECT_NE(fault->message.find("wait for ever"), std::string::npos) << fault->message;
  EXPECT_NE(fault->message.find(place), std::string::npos) << fault->message;
}

TEST(DeadlockTest, AWaitThatNobodyEndsIsAFaultThatNamesIt) {
  const std::string body = std::string(kInit) + "W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W;";
  for (const uint64_t seed : {0, 1, 2}) {
    const auto fault = RunBody(body, 64, seed);
    ExpectDeadlock(fault, "mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0");
    ExpectDeadlock(fault, "PTX line 8");
  }
}

// A box that is larger than what the barrier was told: the phase never ends, on a GPU neither.
TEST(DeadlockTest, TheReportSaysWhatAnMBarrierLacks) {
  const std::string wait = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W;";
  const std::string expect = "@%p1 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r2],8192;\n";
  ExpectDeadlock(RunBody(kInit + wait), "(1 arrivals are missing)");
  ExpectDeadlock(RunBody(kInit + expect + wait), "(8192 bytes are missing)");
  const std::string brought = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2],32768;\n";
  ExpectDeadlock(RunBody(kInit + expect + brought + wait), "(24576 bytes more than it expects were brought)");
}

TEST(DeadlockTest, TwoThatWaitForOneAnother) {
  // Warp 0 waits for a, and would then arrive at b; warp 1 the other way round.
  const std::string body = std::string(kInit) + R"(setp.lt.u32 %p3,%r1,32; @%p3 bra X;
Y: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r3],0; @!%p2 bra Y; mbarrier.arrive.shared::cta.b64 _,[%r2]; bra E;
X: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra X; mbarrier.arrive.shared::cta.b64 _,[%r3]; E:)";
  for (const uint64_t seed : {0, 7}) ExpectDeadlock(RunBody(body, 64, seed), "%p2,[%r3],0");
}

// As compilers write it: the predicate as a number. The other warp waits at a barrier of the block.
TEST(DeadlockTest, WaitsOfBothKinds) {
  const std::string body = std::string(kInit) + R"(setp.lt.u32 %p3,%r1,32; @%p3 bra X; bar.sync 1; bra E;
X: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; selp.b32 %r4,1,0,%p2; setp.eq.s32 %p4,%r4,0; @%p4 bra X; bar.sync 1; E:)";
  const auto fault = RunBody(body);
  ExpectDeadlock(fault, "bar.sync 1");
  ExpectDeadlock(fault, "mbarrier.try_wait");
}

// Whoever counts his turns, looks elsewhere or sleeps may yet go on.
TEST(DeadlockTest, WaitsThatEndOtherwiseAreNone) {
  const char* const bodies[] = {
      // Gives up after many turns.
      R"(mov.u32 %r4,0; W: add.u32 %r4,%r4,1; setp.gt.u32 %p3,%r4,9000; @%p3 bra E;
mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W; E:)",
      // Until a time.
      R"(mov.u32 %r4,%clock; W: mov.u32 %r5,%clock; sub.u32 %r5,%r5,%r4; setp.gt.u32 %p3,%r5,90000000; @%p3 bra E;
mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W; E:)",
      // The other warp arrives, late.
      R"(setp.lt.u32 %p3,%r1,32; @%p3 bra W; mov.u32 %r4,0; L: add.u32 %r4,%r4,1; setp.lt.u32 %p4,%r4,3000000; @%p4 bra L;
setp.ne.u32 %p4,%r1,40; @%p4 bra E; mbarrier.arrive.shared::cta.b64 _,[%r2]; bra E;
W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W; E:)",
      // A lane of the own warp arrives, which waits to join the others.
      R"(setp.eq.u32 %p3,%r1,5; @%p3 bra A; W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W; bra E;
A: nanosleep.u32 3000000; mbarrier.arrive.shared::cta.b64 _,[%r2]; E:)"};
  for (const char* body : bodies) {
    for (const uint64_t seed : {0, 3}) {
      const auto fault = RunBody(kInit + std::string(body), 64, seed);
      EXPECT_FALSE(fault) << fault->message << body;
    }
  }
}

// A lane that has come to where the others are to join it waits for them, for a while; only then it arrives. Whenever
// it came, nobody takes that for the end.
TEST(DeadlockTest, ALaneThatWaitsForTheOthersMayGoOn) {
  for (uint32_t turns = 1; turns < 1'500'000; turns += 1 + turns / 8) {
    const std::string body =
        std::string(kInit) +
        "setp.eq.u32 %p3,%r1,5; @!%p3 bra W; mov.u32 %r4,0; L: add.u32 %r4,%r4,1; setp.lt.u32 %p4,%r4," +
        std::to_string(turns) + R"(; @%p4 bra L; bra A;
W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W; A: @!%p3 bra E; mbarrier.arrive.shared::cta.b64 _,[%r2]; E:)";
    const auto fault = RunBody(body, 32);
    ASSERT_FALSE(fault) << fault->message << turns;
  }
}

// Another block ends the wait, by a word of memory.
TEST(DeadlockTest, ALookAtMemoryInTheLoopIsNoDeadlock) {
  const std::string body = std::string(kInit) + R"(mov.u32 %r6,%ctaid.x; setp.ne.u32 %p3,%r6,0; @%p3 bra A;
W: ld.relaxed.gpu.global.u32 %r5,[%rd1]; setp.ne.u32 %p4,%r5,0; @%p4 bra E;
mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W; bra E;
A: mov.u32 %r4,0; L: add.u32 %r4,%r4,1; setp.lt.u32 %p4,%r4,3000000; @%p4 bra L; st.relaxed.gpu.global.u32 [%rd1],1; E:)";
  const auto fault = RunBody(body, 32, 0, 2);
  EXPECT_FALSE(fault) << fault->message;
}

// A ring of one place. Warp 0 fills it 16 times: waits until it is empty, writes, arrives at `full` (a). Warp 1 waits
// until it is full, reads, arrives at `empty` (b). `first` is the parity of the producer's first wait: 1 passes at
// once.
std::string Ring(const std::string& first, const std::string& flips) {
  return std::string(kInit) +
         "mov.u32 %r8,s; mov.u32 %r4,0; setp.lt.u32 %p3,%r1,32; @%p3 bra P;\n"
         "mov.u32 %r5,0;\nC: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],%r5; @!%p2 bra C; xor.b32 %r5,%r5,1;\n"
         "ld.shared.u32 %r6,[%r8]; setp.ne.u32 %p4,%r6,%r4; @%p4 trap; bar.warp.sync -1; setp.ne.u32 %p5,%r1,32; @%p5 "
         "bra N; mbarrier.arrive.shared::cta.b64 _,[%r3]; N: add.u32 %r4,%r4,1; setp.lt.u32 %p4,%r4,16; @%p4 bra C; "
         "bra E;\n"
         "P: mov.u32 %r5," +
         first + ";\nQ: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r3],%r5; @!%p2 bra Q; " + flips +
         "\nst.shared.u32 [%r8],%r4; bar.warp.sync -1; @%p1 bra M; mbarrier.arrive.shared::cta.b64 _,[%r2]; M: add.u32 "
         "%r4,%r4,1; setp.lt.u32 %p4,%r4,16; @%p4 bra Q; E:";
}

TEST(DeadlockTest, ARingIsRightInEachSchedule) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto fault = RunBody(Ring("1", "xor.b32 %r5,%r5,1;"), 64, seed);
    EXPECT_FALSE(fault) << fault->message << " seed " << seed;
  }
}

// A mistake that needs a delay to be seen: the consumer of two places is told by one barrier that completes for each of
// them, so a late wait for the first finds it completed twice, and waits for ever.
TEST(DeadlockTest, AWaitForThePhaseBeforeLastPassesPlainRunsAndHangsDelayedOnes) {
  const std::string body = std::string(kInit) + R"(mov.u32 %r4,0; mov.u32 %r5,0; setp.ge.u32 %p3,%r1,32; @%p3 bra P;
C: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],%r5; @!%p2 bra C; xor.b32 %r5,%r5,1; add.u32 %r4,%r4,1;
setp.lt.u32 %p4,%r4,2; @%p4 bra C; bra E;
P: setp.ne.u32 %p5,%r1,32; @%p5 bra E; mbarrier.arrive.shared::cta.b64 _,[%r2];
L: add.u32 %r4,%r4,1; setp.lt.u32 %p4,%r4,3000; @%p4 bra L; mbarrier.arrive.shared::cta.b64 _,[%r2]; E:)";
  const auto plain = RunBody(body, 64, 0);
  EXPECT_FALSE(plain) << plain->message;
  uint32_t hung = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto fault = RunBody(body, 64, seed);
    if (fault) ExpectDeadlock(fault, "mbarrier.try_wait");
    hung += fault.has_value();
  }
  EXPECT_GE(hung, 5u);
}

// A copy that nobody waits for has not arrived, in some schedule.
TEST(DeadlockTest, ACopyThatIsNotWaitedForIsLate) {
  const std::string body = R"(@%p1 bra E; mbarrier.init.shared::cta.b64 [%r2],1; mov.u32 %r8,s; mov.u32 %r9,0;
st.shared.u32 [%r8],%r9; mov.u32 %r9,1; st.global.u32 [%rd1],%r9;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8],[%rd1],16,[%r2];
mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r2],16;
ld.volatile.shared.u32 %r10,[%r8]; setp.eq.u32 %p3,%r10,0; @%p3 trap;
W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W;
ld.volatile.shared.u32 %r10,[%r8]; setp.eq.u32 %p3,%r10,0; @%p3 brkpt; E:)";
  EXPECT_FALSE(RunBody(body, 32, 0));
  uint32_t late = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto fault = RunBody(body, 32, seed);
    if (!fault) continue;
    EXPECT_EQ(fault->cu_result, kFaultLaunchFailed) << fault->message;  // the first look, never the second
    ++late;
  }
  EXPECT_GE(late, 5u);
}

// Of two groups the first is awaited: the second is late then, and so is what belongs to none.
TEST(DeadlockTest, ACopyOfAGroupThatIsNotWaitedForIsLate) {
  const auto body = [](const std::string& first_wait, const std::string& offset) {
    return R"(@%p1 bra E; mov.u32 %r8,s; mov.u32 %r9,0; st.shared.u32 [%r8],%r9; st.shared.u32 [%r8+16],%r9;
st.shared.u32 [%r8+32],%r9; mov.u32 %r9,1; st.global.u32 [%rd1],%r9;
cp.async.ca.shared.global [%r8],[%rd1],4; cp.async.commit_group;
cp.async.ca.shared.global [%r8+16],[%rd1],4; cp.async.commit_group;
cp.async.ca.shared.global [%r8+32],[%rd1],4; )" +
           first_wait + " ld.volatile.shared.u32 %r10,[%r8" + offset + "]; setp.eq.u32 %p3,%r10,0; @%p3 trap; E:";
  };
  const auto is_late = [&](const std::string& wait, const std::string& offset) {
    EXPECT_FALSE(RunBody(body(wait, offset), 32, 0)) << wait;  // the natural schedule is never late
    return RunBody(body(wait, offset), 32, 3).has_value();
  };
  EXPECT_FALSE(is_late("cp.async.wait_group 1;", ""));
  EXPECT_TRUE(is_late("cp.async.wait_group 1;", "+16"));
  EXPECT_TRUE(is_late("cp.async.wait_group 2;", ""));
  EXPECT_FALSE(is_late("cp.async.wait_group 0;", "+16"));
  EXPECT_TRUE(is_late("cp.async.wait_group 0;", "+32"));
  EXPECT_FALSE(is_late("cp.async.wait_all;", "+32"));
}

}  // namespace
}  // namespace tally::sim_driver
