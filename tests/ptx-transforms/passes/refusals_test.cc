// What the passes refuse and what they accept, one small kernel each.
#include <gmock/gmock.h>

#include "ptx-transforms/transform.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

constexpr std::string_view kRegisters =
    ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.shared .align 8 .b8 s[64];\n";

// The code with which a pass refuses a kernel of these statements; "done" if it does not.
std::string Outcome(std::string_view pass, std::string_view statements, std::string_view before = "") {
  const std::string text = WithHeader(std::string(before) + ".visible .entry kernel(.param .u64 p){\n" +
                                      std::string(kRegisters) + std::string(statements) + "\n}\n");
  const Result<Transformed> result = TransformText(text, {.pipelines = {{std::string(pass)}}});
  if (!result) return result.error().ToString();
  const KernelVariant& variant = result->variants.at(0);
  if (variant.is_done()) return "done";
  EXPECT_NE(variant.refusal.code, "verifier") << variant.refusal.sentence;
  return variant.refusal.code;
}
std::string Slice(std::string_view statements, std::string_view before = "") {
  return Outcome("slice_grid", statements, before);
}
std::string PersistentBlocks(std::string_view statements, std::string_view before = "") {
  return Outcome("persistent_blocks", statements, before);
}
std::string Import(std::string_view statements, std::string_view before = "") {
  return Outcome("import_globals", statements, before);
}

// It stands in front of everything, so hardly anything matters.
TEST(Refusals, OfGates) {
  const auto gate = [](std::string_view statements, std::string_view before = "") {
    return Outcome("gate_entry", statements, before);
  };
  EXPECT_EQ(gate("mov.u64 %rd1, %gridid; ret;"), "grid-id");
  EXPECT_EQ(gate("call cudaLaunchDeviceV2; ret;", ".extern .func cudaLaunchDeviceV2;\n"), "device-launch");
  EXPECT_EQ(gate("mov.u32 %undeclared, 0; ret;"), "unresolved-name");
  EXPECT_EQ(gate("call elsewhere; ret;", ".extern .func elsewhere;\n"), "done");
  EXPECT_EQ(gate("barrier.cluster.arrive.aligned; ret;"), "done");
  EXPECT_EQ(gate("L: ld.acquire.gpu.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;"), "done");
  const auto of_header = [](const std::string& header) {
    const Result<Transformed> result =
        TransformText(header + ".address_size 64\n.visible .entry kernel(.param .u64 p){\nret;\n}\n",
                      {.pipelines = {{"gate_entry"}}});
    return result ? result->variants.at(0).refusal.code : result.error().ToString();
  };
  EXPECT_EQ(of_header(".version 6.1\n.target sm_70\n"), "ptx-version");
  EXPECT_EQ(of_header(".version 6.2\n.target sm_61\n"), "ptx-version");
  EXPECT_EQ(of_header(".version 6.2\n.target sm_70\n"), "");
}

TEST(Gates, SayWhatTheyDoNotMind) {
  const auto variant_of = [](const std::string& header, const std::string& statements) {
    const std::string text = header + ".address_size 64\n.visible .entry kernel(.param .u32 p){\n" +
                             std::string(kRegisters) + statements + "\n}\n";
    return TransformText(text, {.pipelines = {{"gate_entry"}}})->variants.at(0);
  };
  const std::string spin = "L: ld.acquire.gpu.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;";
  EXPECT_TRUE(variant_of(".version 8.0\n.target sm_90\n", spin).waits_for_blocks);
  EXPECT_FALSE(variant_of(".version 8.0\n.target sm_90\n", "ret;").waits_for_blocks);
  EXPECT_TRUE(variant_of(".version 8.0\n.target sm_90\n", "ret;").gates_clusters);
  EXPECT_FALSE(variant_of(".version 8.0\n.target sm_80\n", "ret;").gates_clusters);
  EXPECT_FALSE(variant_of(".version 7.7\n.target sm_90\n", "ret;").gates_clusters);
  EXPECT_EQ(variant_of(".version 7.7\n.target sm_90\n", "ret;").hidden_parameter_offset, 16u);
}

TEST(Refusals, OfGridsThatBelongTogether) {
  EXPECT_EQ(Slice("mov.u32 %r1, %clusterid.x; ret;"), "cluster");
  EXPECT_EQ(Slice("barrier.cluster.arrive.aligned; ret;"), "cluster");
  EXPECT_EQ(Slice("mapa.shared::cluster.u32 %r1, %r2, 1; ret;"), "cluster");
  EXPECT_EQ(Slice("griddepcontrol.wait; ret;"), "dependent-launch");
  EXPECT_EQ(Slice("mov.u64 %rd1, %gridid; ret;"), "grid-id");
  EXPECT_EQ(Slice("mov.u32 %r1, %envreg2; ret;"), "environment-register");
  EXPECT_EQ(Slice("mov.u16 %h1, %ctaid.x; ret;"), "narrow-block-index");
  EXPECT_EQ(Slice("mov.v4.u32 {%r1, %r2, %r3, %r4}, %nctaid; ret;"), "narrow-block-index");
  EXPECT_EQ(Slice("mov.u32 %r1, %smid; ret;"), "done");
  EXPECT_EQ(Slice("fence.acq_rel.cluster; ret;"), "done") << "a scope is no cluster";
}

TEST(Refusals, OfWhatIsNotUnderstood) {
  EXPECT_EQ(Slice("frobnicate.u32 %r1, %r2; ret;"), "unknown-instruction");
  EXPECT_EQ(Slice("_mma.warpgroup.m64n64k16.f32.bf16.bf16.f32 {%r1}, %r2; ret;"), "internal-instruction");
  EXPECT_EQ(Slice("_warpgroup.wait 0; ret;"), "internal-instruction");
  EXPECT_EQ(Slice(".frobnicate 1; ret;"), "unknown-statement");
  EXPECT_EQ(Slice("mov.u32 %r1, %r10; ret;"), "unresolved-name");
  EXPECT_EQ(Slice("bra $nowhere; ret;"), "unresolved-name");
  EXPECT_EQ(Slice("bar.sync 0, 32, 1, 2; ret;"), "unknown-barrier");
}

TEST(Refusals, OfCalls) {
  EXPECT_EQ(Slice("call elsewhere; ret;", ".extern .func elsewhere;\n"), "unknown-callee");
  EXPECT_EQ(Slice("call.uni %rd1, proto;\nproto: .callprototype _ (); ret;"), "indirect-call");
  EXPECT_EQ(Slice("call cudaLaunchDeviceV2; ret;", ".extern .func cudaLaunchDeviceV2;\n"), "device-launch");
  EXPECT_EQ(Slice("call f; ret;", ".func f(){\n.reg .b32 %r1;\nmov.u32 %r1, %ctaid.x;\ncall f;\nret;\n}\n"),
            "recursion");
  EXPECT_EQ(Slice("call f; ret;", ".func f(){\n.reg .b32 %r1;\nmov.u32 %r1, %ctaid.x;\nret;\n}\n"), "done");
  EXPECT_EQ(PersistentBlocks("call f; ret;", ".func f(){\nbar.sync 0;\nret;\n}\n"), "function-barrier");
  EXPECT_EQ(PersistentBlocks("call f; ret;", ".func f(){\nexit;\n}\n"), "exit-in-function");
}

TEST(Refusals, OfLoopsThatWaitForOtherBlocks) {
  const auto loop = [](const std::string& access) {
    return Slice("L: " + access + " setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;");
  };
  EXPECT_EQ(loop("ld.volatile.global.u32 %r1, [%rd1];"), "inter-block-wait");
  EXPECT_EQ(loop("ld.acquire.gpu.u32 %r1, [%rd1];"), "inter-block-wait");
  EXPECT_EQ(loop("ld.relaxed.sys.global.u32 %r1, [%rd1];"), "inter-block-wait");
  EXPECT_EQ(loop("atom.global.exch.b32 %r1, [%rd1], 1;"), "inter-block-wait");
  EXPECT_EQ(loop("atom.global.cas.b32 %r1, [%rd1], 0, 1;"), "inter-block-wait");
  EXPECT_EQ(loop("atom.global.add.u32 %r1, [%rd1], 0;"), "inter-block-wait");
  EXPECT_EQ(loop("atom.global.or.b32 %r1, [%rd1], 0;"), "inter-block-wait");
  EXPECT_EQ(loop("ld.global.u32 %r1, [%rd1];"), "inter-block-wait") << "nothing else changes";
  EXPECT_EQ(loop("ld.volatile.shared.u32 %r1, [s];"), "done") << "within the block";
  EXPECT_EQ(loop("atom.global.add.u32 %r1, [%rd1], 1;"), "done") << "a work queue";
  EXPECT_EQ(loop("ld.global.u32 %r1, [%rd1]; add.u64 %rd1, %rd1, 4;"), "done") << "a search";
  EXPECT_EQ(Slice("L: mov.u32 %r2, %r1; add.u32 %r3, %r2, 1; atom.global.cas.b32 %r1, [%rd1], %r2, %r3;"
                  "setp.ne.u32 %p1, %r1, %r2; @%p1 bra L; ret;"),
            "done")
      << "a retry";
  EXPECT_EQ(Slice("L: mov.u32 %r1, 0; ld.volatile.global.u32 %r2, [%rd1]; setp.ne.u32 %p2, %r2, 0; @!%p2 bra M;"
                  "mov.u32 %r1, 1; M: setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;"),
            "inter-block-wait")
      << "through a branch";
  EXPECT_EQ(Slice("@%p1 bra M; L: ld.volatile.global.u32 %r1, [%rd1]; M: setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;"),
            "inter-block-wait")
      << "a loop with two entries";
  const std::string waits =
      ".func waits(){\n.reg .pred %p1;\n.reg .b32 %r1;\n.reg .b64 %rd1;\n"
      "L: ld.volatile.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;\nret;\n}\n";
  EXPECT_EQ(Slice("call waits; ret;", waits), "inter-block-wait") << "in a function";
  EXPECT_EQ(PersistentBlocks("call calls; ret;", waits + ".func calls(){\ncall waits;\nret;\n}\n"), "inter-block-wait")
      << "in a function of a function";
}

TEST(Refusals, OfWhatLivesAsLongAsABlock) {
  EXPECT_EQ(PersistentBlocks("mbarrier.init.shared.b64 [s], 1; ret;"), "mbarrier");
  EXPECT_EQ(Slice("mbarrier.init.shared.b64 [s], 1; ret;"), "done");
  EXPECT_EQ(PersistentBlocks("alloca.u32 %r1, 16; ret;"), "stack-allocation");
  EXPECT_EQ(PersistentBlocks("setmaxnreg.inc.sync.aligned.u32 240; ret;"), "setmaxnreg");
  EXPECT_EQ(PersistentBlocks("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; ret;"), "tcgen05");
  EXPECT_EQ(PersistentBlocks("mov.u32 %r1, %total_smem_size; ret;"), "total-shared-size");
  EXPECT_EQ(PersistentBlocks("bar.arrive 1, 64; ret;"), "barrier-arrive");
  EXPECT_EQ(PersistentBlocks("cp.async.ca.shared.global [s], [%rd1], 16; ret;"), "done");
}

TEST(Refusals, OfBarriersThatEarlyExitsDisturb) {
  const std::string leave = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 7; @%p1 ret; ";
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 0; ret;"), "done");
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 1; ret;"), "done");
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 0; bar.sync 1; ret;"), "several-barriers");
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 0; bar.sync %r2; ret;"), "barrier-register");
  EXPECT_EQ(PersistentBlocks(leave + "{ .reg .b32 x; bar.sync 0; } ret;"), "done");
  EXPECT_EQ(PersistentBlocks(leave + "{ { bar.sync 0; } } ret;"), "barrier-in-scope");
  EXPECT_EQ(PersistentBlocks(leave + "{ @%p2 bra M; bar.sync 0; M: } ret;"), "barrier-in-scope");
  EXPECT_EQ(PersistentBlocks("{ { bar.sync 0; } } ret;"), "done") << "nobody leaves early";
  EXPECT_EQ(PersistentBlocks("bar.sync 0; bar.sync 1; ret;"), "done");
  EXPECT_EQ(PersistentBlocks("bar.sync %r2; ret;"), "barrier-identifiers");
  EXPECT_EQ(PersistentBlocks("bar.sync 0, 64; ret;"), "done");
}

// Warps that have left stay at the end, so they would be counted at a barrier for some threads, were it the same one.
TEST(Refusals, OfBarriersWithACount) {
  const std::string leave = "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 63; @%p1 ret; ";
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 0; bar.sync 0, 64; ret;"), "barrier-with-count");
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 1, 64; bar.sync 1; ret;"), "barrier-with-count");
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 0; bar.sync 1, 64; ret;"), "done");
  EXPECT_EQ(PersistentBlocks(leave + "bar.sync 0, 64; ret;"), "done") << "no barrier is for all";
  std::string all_with_counts;
  for (int id = 0; id < 15; ++id) all_with_counts += "bar.sync " + std::to_string(id) + ", 64; ";
  EXPECT_EQ(PersistentBlocks(all_with_counts + "ret;"), "done") << "the last is ours";
  EXPECT_EQ(PersistentBlocks(all_with_counts + "bar.sync 15; ret;"), "done");
  EXPECT_EQ(PersistentBlocks(all_with_counts + "bar.sync 15, 64; ret;"), "barrier-identifiers");
}

TEST(Refusals, OfLanesThatOthersWaitFor) {
  const std::string shuffle = "shfl.sync.down.b32 %r2, %r3, 1, 31, -1; ";
  const auto after = [&](const std::string& test) {
    return PersistentBlocks(test + " @%p1 bra L; " + shuffle + "L: ret;");
  };
  EXPECT_EQ(after("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 7;"), "done") << "those that stay are counted";
  EXPECT_EQ(after("mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 31;"), "done") << "whole warps";
  EXPECT_EQ(after("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 7;"), "done") << "whole blocks";
  EXPECT_EQ(after("ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 7;"), "done") << "lanes of one load";
  const std::string lane = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 7; ";
  EXPECT_EQ(PersistentBlocks(lane + "@%p1 bra L; " + shuffle + "L: bar.sync 0; ret;"), "done")
      << "nobody leaves meanwhile";
  EXPECT_EQ(PersistentBlocks(lane + "@%p1 ret; activemask.b32 %r4; shfl.sync.down.b32 %r2, %r3, 1, 31, %r4; ret;"),
            "done");
  EXPECT_EQ(PersistentBlocks(lane + "@%p1 ret; bar.sync 1, 64; ret;"), "warp-sync-after-exit");
  EXPECT_EQ(PersistentBlocks(shuffle + lane + "@%p1 ret; ret;"), "done");
  EXPECT_EQ(PersistentBlocks(lane + "@%p1 " + shuffle + "ret;"), "warp-sync-after-exit") << "its own guard";
}

// Where those that stay cannot be counted, or counting them would wait for somebody who waits for them.
TEST(Refusals, OfLanesThatCannotBeCounted) {
  const std::string shuffle = "shfl.sync.down.b32 %r2, %r3, 1, 31, -1; ";
  const std::string lane = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 7; setp.eq.u32 %p2, %r1, 9; ";
  const std::string leave = lane + "@%p1 ret; ";
  const auto expect = [](const std::string& body, const char* verdict) {
    EXPECT_EQ(PersistentBlocks(body), verdict) << body;
  };
  const char* refused = "warp-sync-after-exit";
  expect(leave + shuffle + "@%p2 bra E; " + shuffle + "E: ret;", "done");
  expect(leave + "L: @%p2 bra E; " + shuffle + "bra L; E: ret;", "done");
  expect(lane + "@%p1 bra E; " + shuffle + "E: st.global.u32 [%rd1], %r1; ret;", "done");
  expect(leave +
             "match.any.sync.b32 %r2, %r3, %r4; redux.sync.add.u32 %r2, %r3, -1; vote.sync.any.pred %p3, %p2, -1; ret;",
         "done");
  expect(leave + "elect.sync %r2|%p3, -1; ret;", refused);                                 // which lane is not said
  expect(leave + "vote.ballot.b32 %r2, %p2; ret;", refused);                               // names nobody
  expect(leave + "@%p2 bra S; " + shuffle + "S: " + shuffle + "ret;", refused);            // who skips one is not gone
  expect(leave + "@%p2 bra S; " + shuffle + "bra E; S: " + shuffle + "E: ret;", refused);  // two places that may meet
  expect(lane + "@%p1 bra E; " + shuffle + "ret; E: " + shuffle + "ret;", refused);
  expect(lane + "@%p2 bra S; @%p1 ret; S: " + shuffle + "ret;", refused);  // some do not come where others leave
  expect(leave + "@%p2 bar.sync 0; @!%p2 bar.sync 0; @%p2 ret; " + shuffle + "ret;", refused);
  expect(lane + "@%p1 bra E; " + shuffle + "E: st.shared.u32 [s], %r1; ret;", refused);
  expect(lane + "@%p1 bra E; " + shuffle + "ret; E: st.shared.u32 [s], %r1; ret;", refused);  // only those that leave
  expect(lane + "@%p1 bra E; " + shuffle + "st.shared.u32 [s], %r1; E: ret;", "done");        // only those that stay
  expect("mov.u32 %r5, s; W: ld.volatile.shared.u32 %r4, [s]; setp.eq.u32 %p3, %r4, 0; @%p3 bra W; " + leave + shuffle +
             "ret;",
         refused);
  EXPECT_EQ(PersistentBlocks(
                leave + "call f; " + shuffle + "ret;",
                ".func f(){\n.reg .b32 %r1; .reg .pred %p1;\nW: ld.volatile.shared.u32 %r1, [0]; setp.eq.u32 %p1, "
                "%r1, 0; @%p1 bra W; ret;\n}\n"),
            refused);
}

TEST(Refusals, OfVariablesThatCannotBeShared) {
  EXPECT_EQ(Import("ld.global.u32 %r1, [g]; ret;", ".global .u32 g;\n"), "done");
  EXPECT_EQ(Import("tex.1d.v4.s32.s32 {%r1,%r2,%r3,%r4}, [t, {%r5}]; ret;", ".global .texref t;\n"),
            "texture-reference");
  EXPECT_EQ(Import("mov.u64 %rd1, f; ret;", ".func f(){\nret;\n}\n"), "function-address");
  EXPECT_EQ(Import("mov.u64 %rd1, g; ret;", ".func f(){\nret;\n}\n.alias g, f;\n"), "function-address");
  EXPECT_EQ(Import("isspacep.const %p1, %rd1; ret;"), "constant-address");
  EXPECT_EQ(Import(".global .u32 mine; ld.global.u32 %r1, [mine]; ret;"), "variable-in-function");
}

TEST(Refusals, OfTooManyParameters) {
  const auto with_bytes = [](int bytes, const char* version) {
    const std::string text = ".version " + std::string(version) + "\n.target sm_80\n.address_size 64\n" +
                             ".visible .entry kernel(.param .b8 big[" + std::to_string(bytes) + "]){\nret;\n}\n";
    return TransformText(text, {.pipelines = {{"slice_grid"}}})->variants.at(0);
  };
  EXPECT_TRUE(with_bytes(4072, "7.0").is_done());
  EXPECT_EQ(with_bytes(4096, "7.0").refusal.code, "parameter-space");
  EXPECT_TRUE(with_bytes(4096, "8.1").is_done());
  EXPECT_EQ(with_bytes(4096, "8.1").hidden_parameter_offset, 4096u);
  EXPECT_EQ(with_bytes(32764, "8.1").refusal.code, "parameter-space");
}

}  // namespace
}  // namespace tally::ptx_transforms
