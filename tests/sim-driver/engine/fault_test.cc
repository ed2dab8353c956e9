// What ends a launch, and what the message says.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

using ::testing::Test;

std::string Kernel1(const std::string& body) {
  return PtxHeader() + ".visible .entry k(.param .u64 p){.reg .b64 %rd<10>; .reg .b32 %r<10>; .reg .pred %p<10>;\n" +
         "ld.param.u64 %rd1,[p];\nmov.u32 %r1,%tid.x;\n" + body + "\nret;}\n";
}

std::optional<Fault> RunText(Launcher& launcher, const std::string& text, uint64_t argument, Dim3 grid = {1},
                             Dim3 block = {32}) {
  auto program = launcher.Load({text});
  if (!program) return std::nullopt;
  return launcher.Run(launcher.Request(program, "k", grid, block, argument));
}

TEST(FaultTest, OutOfBoundsNamesThePlace) {
  Launcher launcher;
  uint64_t buffer = launcher.Upload(std::vector<uint32_t>(40));
  auto fault =
      RunText(launcher, Kernel1("mul.wide.u32 %rd2,%r1,4;\nadd.u64 %rd3,%rd1,%rd2;\nst.global.u32 [%rd3],%r1;"), buffer,
              {1}, {64});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultIllegalAddress);
  EXPECT_NE(fault->message.find("kernel k, block (0,0,0), thread (40,0,0), PTX line 9 'st.global.u32 [%rd3],%r1;'"),
            std::string::npos)
      << fault->message;
}

TEST(FaultTest, NullPointer) {
  Launcher launcher;
  auto fault = RunText(launcher, Kernel1("ld.global.u32 %r2,[%rd1];"), 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultIllegalAddress);
  EXPECT_NE(fault->message.find("null pointer"), std::string::npos) << fault->message;
}

TEST(FaultTest, Misaligned) {
  Launcher launcher;
  uint64_t buffer = launcher.Upload(std::vector<uint32_t>(40));
  // Also where lanes read next to one another, by an instruction that found them aligned before.
  for (const char* loads : {"ld.global.u32 %r2,[%rd1+2];",
                            "mul.wide.u32 %rd2,%r1,4;\nadd.u64 %rd3,%rd1,%rd2;\nmov.u32 %r4,0;\nL:\n"
                            "ld.global.u32 %r2,[%rd3];\nadd.u64 %rd3,%rd3,2;\nadd.u32 %r4,%r4,1;\n"
                            "setp.lt.u32 %p1,%r4,2;\n@%p1 bra L;"}) {
    auto fault = RunText(launcher, Kernel1(loads), buffer);
    ASSERT_TRUE(fault) << loads;
    EXPECT_EQ(fault->cu_result, kFaultMisalignedAddress);
  }
}

TEST(FaultTest, FreedMemoryIsNoticedThoughTheAllocationWasRemembered) {
  Launcher launcher({.num_workers = 1});
  uint64_t buffer = launcher.Upload(std::vector<uint32_t>(40));
  auto program = launcher.Load({Kernel1("st.global.u32 [%rd1],%r1;")});
  ASSERT_TRUE(program);
  EXPECT_FALSE(launcher.Run(launcher.Request(program, "k", {1}, {32}, buffer)));
  launcher.memory().Free(buffer);
  auto fault = launcher.Run(launcher.Request(program, "k", {1}, {32}, buffer));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultIllegalAddress);
}

TEST(FaultTest, SharedOutOfBounds) {
  Launcher launcher;
  auto fault = RunText(launcher,
                       Kernel1(".shared .align 4 .b8 s[64];\nmov.u32 %r2,s; shl.b32 %r3,%r1,2; add.u32 %r2,%r2,%r3; "
                               "st.shared.u32 [%r2],%r1;"),
                       0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultIllegalAddress);
  EXPECT_NE(fault->message.find("thread (16,0,0)"), std::string::npos) << fault->message;
}

TEST(FaultTest, BarrierThatHalfOfTheWarpNeverReaches) {
  Launcher launcher;
  auto fault = RunText(launcher,
                       Kernel1("setp.lt.u32 %p1,%r1,16;\n@%p1 bra A;\nbar.sync 1;\nbra.uni B;\nA: bar.sync 2;\nB:"), 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultLaunchTimeout);
  EXPECT_NE(fault->message.find("bar.sync 1"), std::string::npos) << fault->message;
  EXPECT_NE(fault->message.find("bar.sync 2"), std::string::npos) << fault->message;
  EXPECT_NE(fault->message.find("15 more"), std::string::npos) << fault->message;
}

TEST(FaultTest, BarrierCountThatCannotBeReached) {
  Launcher launcher;
  auto fault = RunText(launcher, Kernel1("bar.sync 1, 96;"), 0, {1}, {64});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultLaunchTimeout);
}

TEST(FaultTest, StrictAlignedBarriers) {
  std::string text = Kernel1("setp.lt.u32 %p1,%r1,16;\n@%p1 bra A;\nbar.sync 0;\nbra.uni B;\nA: bar.sync 0;\nB:");
  Launcher tolerant;
  EXPECT_FALSE(RunText(tolerant, text, 0));
  Launcher strict({.strict_aligned_barriers = true});
  auto fault = RunText(strict, text, 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultLaunchTimeout);
}

TEST(FaultTest, TrapAndBrkpt) {
  Launcher launcher;
  auto fault = RunText(launcher, Kernel1("setp.eq.u32 %p1,%r1,7;\n@%p1 trap;"), 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultLaunchFailed);
  EXPECT_NE(fault->message.find("thread (7,0,0)"), std::string::npos) << fault->message;
  fault = RunText(launcher, Kernel1("brkpt;"), 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultIllegalInstruction);
}

TEST(FaultTest, CallOfWhatIsNoFunction) {
  Launcher launcher;
  auto fault = RunText(launcher, Kernel1("pr: .callprototype _ ();\n call %rd1, (), pr;"), 4096);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultInvalidPc);
}

TEST(FaultTest, EndlessRecursion) {
  Launcher launcher;
  std::string text = PtxHeader() +
                     ".func f(){ .local .b8 a[64]; .reg .b64 %rd<2>; mov.u64 %rd1, a; st.local.u64 [%rd1],%rd1; call "
                     "f; ret; }\n.visible .entry k(.param .u64 p){ call f; ret; }";
  auto fault = RunText(launcher, text, 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultHardwareStackError);
}

TEST(FaultTest, UnsupportedInstructionIsNamed) {
  Launcher launcher;
  std::string text = Kernel1(".reg .f32 %f<9>;\ntcgen05.wait::ld.sync.aligned;") + ".visible .entry fine(){ret;}";
  auto program = launcher.Load({text});
  ASSERT_TRUE(program);
  EXPECT_EQ(program->kernels()[*program->FindKernel("fine")].unsupported, "");
  auto fault = launcher.Run(launcher.Request(program, "k", {1}, {32}, uint64_t{0}));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultNotSupported);
  EXPECT_NE(fault->message.find("tcgen05.wait::ld.sync.aligned"), std::string::npos) << fault->message;
}

TEST(FaultTest, UninitialisedSharedMemoryWhenAsked) {
  std::string text = Kernel1(
      ".shared .align 4 .b8 s[256];\nmov.u32 %r2,s; shl.b32 %r3,%r1,2; add.u32 %r2,%r2,%r3;\nsetp.ne.u32 "
      "%p1,%r1,9;\n@%p1 st.shared.u32 [%r2],%r1;\nld.shared.u32 %r4,[%r2];");
  Launcher relaxed;
  EXPECT_FALSE(RunText(relaxed, text, 0));
  Launcher checking({.check_uninitialized_shared = true});
  auto fault = RunText(checking, text, 0);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->message.find("thread (9,0,0)"), std::string::npos) << fault->message;
}

TEST(FaultTest, OtherBlocksStopAndTheMachineGoesOn) {
  Launcher launcher;
  uint64_t buffer = launcher.Upload(std::vector<uint32_t>(4));
  // Block 0 faults, all others spin for ever.
  auto fault = RunText(launcher,
                       Kernel1("mov.u32 %r2,%ctaid.x;\nsetp.ne.u32 %p1,%r2,0;\n@%p1 bra L;\ntrap;\nL: "
                               "ld.volatile.global.u32 %r3,[%rd1];\nsetp.eq.u32 %p2,%r3,0;\n@%p2 bra L;"),
                       buffer, {8});
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->message.find("block (0,0,0)"), std::string::npos);
  EXPECT_FALSE(RunText(launcher, Kernel1("st.global.u32 [%rd1],1;"), buffer));
}

TEST(FaultTest, RefusedRequests) {
  Launcher launcher;
  auto program = launcher.Load({Kernel1("")});
  ASSERT_TRUE(program);
  struct Shape {
    Dim3 grid, block;
  };
  for (const auto& [grid, block] : {Shape{{1}, {0}}, Shape{{1}, {2048}}, Shape{{1}, {1, 1, 65}}, Shape{{0}, {1}},
                                    Shape{{1, 65536}, {1}}, Shape{{1, 1, 65536}, {1}}, Shape{{0x80000000}, {1}}}) {
    auto fault = launcher.Run(launcher.Request(program, "k", grid, block, uint64_t{0}));
    ASSERT_TRUE(fault) << grid.x << " " << grid.y << " " << grid.z << " " << block.x;
    EXPECT_EQ(fault->cu_result, kFaultInvalidValue);
  }
}

}  // namespace
}  // namespace tally::sim_driver
