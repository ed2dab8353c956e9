// setmaxnreg: as on a GPU, a warp waits until the others have given back what it asks for.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

// Warps below the last warpgroup do `many`, those of it `few`; then each thread stores 1.
std::string RegisterKernel(const std::string& bounds, uint32_t first_of_last, const std::string& many,
                           const std::string& few) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n"
         ".visible .entry k(.param .u64 p) " +
         bounds +
         "{.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 8 .b64 a;\n"
         "ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; mov.u32 %r2,a; mul.wide.u32 %rd2,%r1,4; add.u64 %rd1,%rd1,%rd2;\n"
         "setp.ne.u32 %p1,%r1,0; @%p1 bra I; mbarrier.init.shared::cta.b64 [%r2],1; I: bar.sync 0;\n"
         "setp.ge.u32 %p1,%r1," +
         std::to_string(first_of_last) + "; @%p1 bra FEW;\n" + many + "\nbra END;\nFEW:\n" + few +
         "\nEND: mov.u32 %r3,1; st.global.u32 [%rd1],%r3; ret;}\n";
}

constexpr const char* kThreeWarpgroups = ".maxntid 384,1,1 .minnctapersm 1";
const std::string kInc240 = "setmaxnreg.inc.sync.aligned.u32 240;";
const std::string kDec24 = "setmaxnreg.dec.sync.aligned.u32 24;";

std::optional<Fault> RunKernel(const std::string& text, uint32_t threads, uint64_t seed = 0) {
  Launcher launcher;
  const auto program = launcher.Load({text});
  if (!program) return std::nullopt;
  EXPECT_EQ(program->kernels()[0].unsupported, "");
  const uint64_t results = launcher.Upload(std::vector<uint32_t>(1024));
  LaunchRequest request = launcher.Request(program, "k", {2}, {threads}, results);
  request.schedule_seed = seed;
  const auto fault = launcher.Run(std::move(request));
  if (!fault) {
    EXPECT_EQ(launcher.Download<uint32_t>(results, threads), std::vector<uint32_t>(threads, 1));
  }
  return fault;
}

void ExpectHang(const std::string& text, uint32_t threads, const std::string& place) {
  for (const uint64_t seed : {0, 1, 2}) {
    const auto fault = RunKernel(text, threads, seed);
    ASSERT_TRUE(fault) << "seed " << seed;
    EXPECT_EQ(fault->cu_result, kFaultLaunchTimeout) << fault->message;
    EXPECT_NE(fault->message.find(place), std::string::npos) << fault->message;
    EXPECT_NE(fault->message.find("a thread of it has"), std::string::npos) << fault->message;
  }
}

void ExpectEnd(const std::string& text, uint32_t threads) {
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    const auto fault = RunKernel(text, threads, seed);
    EXPECT_FALSE(fault) << "seed " << seed << ": " << fault->message;
  }
}

TEST(RegisterPoolTest, WhatOneWarpgroupGivesBackOthersTake) {
  ExpectEnd(RegisterKernel(kThreeWarpgroups, 256, kInc240, kDec24), 384);
  ExpectEnd(RegisterKernel(".maxntid 512,1,1 .minnctapersm 1", 384, "setmaxnreg.inc.sync.aligned.u32 160;", kDec24),
            512);
}

// 168 * 384 registers: two warpgroups with 240 leave 24 for the third.
TEST(RegisterPoolTest, MoreThanTheBlockHasIsWaitedForForEver) {
  ExpectHang(RegisterKernel(kThreeWarpgroups, 256, "setmaxnreg.inc.sync.aligned.u32 248;", kDec24), 384,
             "setmaxnreg.inc.sync.aligned.u32 248");
  ExpectHang(RegisterKernel(kThreeWarpgroups, 256, kInc240, "setmaxnreg.dec.sync.aligned.u32 32;"), 384, kInc240);
}

TEST(RegisterPoolTest, NothingGivenBackNothingTaken) {
  ExpectHang(RegisterKernel(kThreeWarpgroups, 256, kInc240, ""), 384, kInc240);
}

// Whoever gives nothing and waits for an mbarrier of those that wait for registers.
TEST(RegisterPoolTest, WaitsForRegistersAndForBarriersEndOneAnotherNever) {
  ExpectHang(RegisterKernel(kThreeWarpgroups, 256, kInc240 + " mbarrier.arrive.shared::cta.b64 _,[%r2];",
                            "W: mbarrier.try_wait.parity.shared::cta.b64 %p2,[%r2],0; @!%p2 bra W;"),
             384, kInc240);
}

// Two blocks at a time halve what one has: __launch_bounds__(256, 2).
TEST(RegisterPoolTest, BlocksThatShallFitTogetherHaveLess) {
  ExpectEnd(RegisterKernel(".maxntid 256,1,1 .minnctapersm 1", 128, kInc240, kDec24), 256);
  ExpectHang(RegisterKernel(".maxntid 256,1,1 .minnctapersm 2", 128, kInc240, kDec24), 256, kInc240);
  ExpectEnd(RegisterKernel(".maxntid 256,1,1 .minnctapersm 2", 128, "setmaxnreg.inc.sync.aligned.u32 232;", kDec24),
            256);
}

TEST(RegisterPoolTest, ABoundOfRegistersCounts) {
  // One warp each, so that what lacks is one step.
  ExpectEnd(RegisterKernel(".maxnreg 128", 32, "setmaxnreg.inc.sync.aligned.u32 232;", kDec24), 64);
  ExpectHang(RegisterKernel(".maxnreg 128", 32, kInc240, kDec24), 64, kInc240);
  ExpectEnd(RegisterKernel(".maxnreg 128", 128, "setmaxnreg.inc.sync.aligned.u32 232;", kDec24), 256);
  ExpectHang(RegisterKernel(".maxnreg 128", 128, kInc240, kDec24), 256, kInc240);
}

// ptxas ignores it: it does not know how many registers there are.
TEST(RegisterPoolTest, WithoutBoundsItHasNoEffect) {
  ExpectEnd(RegisterKernel("", 256, kInc240, ""), 384);
  ExpectEnd(RegisterKernel(".maxntid 384,1,1", 256, kInc240, ""), 384);
}

// The last warpgroup gives in two steps; the second is too late for nobody.
TEST(RegisterPoolTest, WhoWaitsGoesOnOnceThereIsEnough) {
  ExpectEnd(RegisterKernel(kThreeWarpgroups, 256, kInc240,
                           "setmaxnreg.dec.sync.aligned.u32 96; nanosleep.u32 200000; bar.sync 1,128; " + kDec24),
            384);
}

TEST(RegisterPoolTest, OddCountsAreRefused) {
  for (const char* count : {"16", "100", "264"}) {
    const std::string inc = "setmaxnreg.inc.sync.aligned.u32 " + std::string(count) + ";";
    const std::string text = RegisterKernel(kThreeWarpgroups, 256, inc, "");
    const std::string_view texts[] = {text};
    const auto program = CompileProgram(texts);
    EXPECT_TRUE(!program || !(*program)->kernels()[0].unsupported.empty()) << count;
  }
}

}  // namespace
}  // namespace tally::sim_driver
