// Spaces, vectors, generic addresses, atomics, asynchronous copies.
#include <bit>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

std::string Kernel1(const std::string& body, const std::string& before = "") {
  return PtxHeader() + before +
         ".visible .entry k(.param .u64 p, .param .u64 q){.reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .b16 %rs<20>; .reg "
         ".f32 %f<20>; .reg .f64 %fd<9>; .reg .pred %p<10>; .reg .b128 %q<3>;\n" +
         "ld.param.u64 %rd1,[p]; ld.param.u64 %rd2,[q]; mov.u32 %r1,%tid.x; mul.wide.u32 %rd3,%r1,4; add.u64 "
         "%rd4,%rd2,%rd3;\n" +
         body + "\nret;}\n";
}

class MemoryTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> RunText(const std::string& text, uint64_t p, Dim3 block = {32}, uint32_t shared = 0) {
    auto program = launcher_.Load({text});
    if (!program) return {};
    uint64_t out = launcher_.Upload(std::vector<uint32_t>(256));
    LaunchRequest request = launcher_.Request(program, "k", {1}, block, p, out);
    request.dynamic_shared_bytes = shared;
    auto fault = launcher_.Run(std::move(request));
    EXPECT_FALSE(fault) << fault->message;
    return launcher_.Download<uint32_t>(out, 256);
  }
  Launcher launcher_;
};

TEST_F(MemoryTest, SubWordsAndVectors) {
  std::vector<uint32_t> in = {0x80ff7f01, 2, 3, 4, 5, 6, 7, 8};
  uint64_t p = launcher_.Upload(in);
  auto out = RunText(
      Kernel1("ld.global.s8 %r2,[%rd1+2]; ld.global.u8 %rs1,[%rd1+3]; cvt.u32.u16 %r3,%rs1; add.s32 %r4,%r2,%r3;\n"
              "ld.global.v4.u32 {%r5,%r6,_,%r8},[%rd1+16]; add.u32 %r4,%r4,%r8; ld.global.nc.v2.u64 "
              "{%rd5,%rd6},[%rd1]; cvt.u32.u64 %r9,%rd6; add.u32 %r4,%r4,%r9; st.global.u32 [%rd4],%r4;\n"
              "st.global.v2.u32 [%rd1+8],{%r5,%r6}; st.global.u8 [%rd1],%r8;"),
      p, {1});
  EXPECT_EQ(out[0], static_cast<uint32_t>(-1 + 0x80 + 8 + 3));
  auto after = launcher_.Download<uint32_t>(p, 4);
  EXPECT_EQ(after, (std::vector<uint32_t>{0x80ff7f08, 2, 5, 6}));
}

TEST_F(MemoryTest, LocalSharedAndGenericAddresses) {
  auto out = RunText(Kernel1(R"(.local .align 8 .b8 l[16]; .shared .align 4 .b8 s[128];
mov.u64 %rd5,l; cvta.local.u64 %rd6,%rd5; st.u32 [%rd6+4],%r1; ld.local.u32 %r2,[%rd5+4];
mov.u64 %rd7,s; cvta.shared.u64 %rd8,%rd7; add.u64 %rd9,%rd8,%rd3; st.u32 [%rd9],%r2; bar.sync 0;
mov.u32 %r3,s; xor.b32 %r4,%r1,1; shl.b32 %r5,%r4,2; add.u32 %r6,%r3,%r5; ld.shared.u32 %r7,[%r6];
isspacep.shared %p1,%rd9; isspacep.local %p2,%rd6; isspacep.global %p3,%rd1; and.pred %p1,%p1,%p2; and.pred %p1,%p1,%p3; @!%p1 mov.u32 %r7,999;
cvta.to.shared.u64 %rd10,%rd9; add.u64 %rd11,%rd7,%rd3; setp.ne.u64 %p4,%rd10,%rd11; @%p4 mov.u32 %r7,888; st.global.u32 [%rd4],%r7;)"),
                     launcher_.Upload(std::vector<int>(4)));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], t ^ 1) << t;
}

// Shared memory of another block of the cluster is of the cluster, and not the block's own.
TEST_F(MemoryTest, SharedMemoryOfAnotherBlock) {
  const auto program = launcher_.Load({Kernel1(R"(.shared .align 4 .b8 s[128];
mov.u64 %rd7,s; cvta.shared.u64 %rd8,%rd7; mov.u32 %r3,%cluster_ctarank; xor.b32 %r4,%r3,1; mapa.u64 %rd5,%rd8,%r3; mapa.u64 %rd6,%rd8,%r4;
isspacep.shared::cta %p1,%rd5; isspacep.shared::cta %p2,%rd6; isspacep.shared::cluster %p3,%rd5; isspacep.shared::cluster %p4,%rd6;
selp.u32 %r5,1,0,%p1; selp.u32 %r6,2,0,%p2; selp.u32 %r7,4,0,%p3; selp.u32 %r8,8,0,%p4; add.u32 %r5,%r5,%r6; add.u32 %r7,%r7,%r8; add.u32 %r5,%r5,%r7;
mul.wide.u32 %rd9,%r3,4; add.u64 %rd9,%rd2,%rd9; st.global.u32 [%rd9],%r5; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)")});
  ASSERT_TRUE(program);
  const uint64_t out = launcher_.Upload(std::vector<uint32_t>(2));
  LaunchRequest request = launcher_.Request(program, "k", {2}, {32}, launcher_.Upload(std::vector<int>(4)), out);
  request.cluster = {2, 1, 1};
  const auto fault = launcher_.Run(std::move(request));
  ASSERT_FALSE(fault) << fault->message;
  EXPECT_EQ(launcher_.Download<uint32_t>(out, 2), std::vector<uint32_t>(2, 1 + 4 + 8));
}

TEST_F(MemoryTest, DynamicSharedMemoryFollowsStatic) {
  auto out = RunText(
      Kernel1(
          "mov.u32 %r2,s; mov.u32 %r3,d; sub.u32 %r4,%r3,%r2; st.shared.u32 [d+60],%r4; mov.u32 "
          "%r5,%dynamic_smem_size; ld.shared.u32 %r6,[%r3+60]; mad.lo.u32 %r6,%r5,1000,%r6; st.global.u32 [%rd4],%r6;",
          ".shared .align 4 .b8 s[100];\n.extern .shared .align 16 .b8 d[];\n"),
      0, {1}, 64);
  EXPECT_EQ(out[0], 64112u);
}

TEST_F(MemoryTest, Atomics) {
  std::vector<uint32_t> in(16);
  in[1] = 100, in[3] = 7;
  uint64_t p = launcher_.Upload(in);
  auto out = RunText(
      Kernel1(
          R"(atom.global.add.u32 %r2,[%rd1],%r1; atom.global.min.s32 %r3,[%rd1+4],%r1; red.global.or.b32 [%rd1+8],%r1; atom.global.inc.u32 %r4,[%rd1+12],9;
cvt.rn.f32.u32 %f1,%r1; red.global.add.f32 [%rd1+16],%f1; cvt.f64.f32 %fd1,%f1; atom.global.add.f64 %fd2,[%rd1+24],%fd1; mov.u32 %r5,0x3c003c00; red.global.add.noftz.f16x2 [%rd1+20],%r5;
atom.relaxed.sys.global.cas.b32 %r6,[%rd1+32],0,%r1; atom.global.exch.b64 %rd5,[%rd1+40],%rd3; atom.global.max.u64 %rd6,[%rd1+48],%rd3;)"),
      p);
  auto after = launcher_.Download<uint32_t>(p, 16);
  EXPECT_EQ(after[0], 496u);
  EXPECT_EQ(after[1], 0u);
  EXPECT_EQ(after[2], 31u);
  EXPECT_EQ(after[3], (7u + 32) % 10);
  EXPECT_EQ(std::bit_cast<float>(after[4]), 496.0f);
  EXPECT_EQ(after[5], 0x50005000u);  // 32 of f16
  EXPECT_EQ(launcher_.Download<double>(p + 24, 1)[0], 496.0);
  EXPECT_EQ(after[8], 1u);  // lane 0 wrote 0, lane 1 found it
  EXPECT_EQ(after[10], 124u);
  EXPECT_EQ(after[12], 124u);
}

TEST_F(MemoryTest, Atomics128) {
  alignas(16) static uint64_t place[2];
  uint64_t p = launcher_.memory().Allocate(64);
  p = (p + 15) / 16 * 16;
  std::memcpy(reinterpret_cast<void*>(p), place, 16);
  RunText(Kernel1("mov.u64 %rd5,5; mov.u64 %rd6,6; mov.b128 %q1,{%rd5,%rd6}; mov.b128 %q0,{%rd7,%rd7}; mov.u64 %rd7,0; "
                  "mov.b128 %q0,{%rd7,%rd7}; atom.global.cas.b128 %q2,[%rd1],%q0,%q1;"),
          p, {1});
  EXPECT_EQ(launcher_.Download<uint64_t>(p, 2), (std::vector<uint64_t>{5, 6}));
}

TEST_F(MemoryTest, AsynchronousCopies) {
  std::vector<uint32_t> in(64);
  for (uint32_t k = 0; k < 64; ++k) in[k] = k + 1;
  uint64_t p = launcher_.memory().Allocate(512);
  p = (p + 15) / 16 * 16;
  std::memcpy(reinterpret_cast<void*>(p), in.data(), 256);
  auto out = RunText(
      Kernel1(
          R"(.shared .align 16 .b8 s[1024]; mov.u32 %r2,s; shl.b32 %r3,%r1,4; add.u32 %r4,%r2,%r3; mul.wide.u32 %rd5,%r1,8; add.u64 %rd6,%rd1,%rd5;
cp.async.ca.shared.global [%r4],[%rd6],8; cp.async.ca.shared.global [%r4+8],[%rd6],8,4; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
ld.shared.v4.u32 {%r5,%r6,%r7,%r8},[%r4]; add.u32 %r9,%r5,%r6; add.u32 %r9,%r9,%r7; add.u32 %r9,%r9,%r8; st.global.u32 [%rd4],%r9;)"),
      p);
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], 2 * in[2 * t] + in[2 * t + 1]) << t;
}

TEST_F(MemoryTest, MBarrierAndBulkCopy) {
  uint64_t p = launcher_.memory().Allocate(512);
  p = (p + 15) / 16 * 16;
  for (uint32_t k = 0; k < 64; ++k) reinterpret_cast<uint32_t*>(p)[k] = k * 3;
  auto out = RunText(
      Kernel1(
          R"(.shared .align 8 .b64 m; .shared .align 16 .b8 s[256]; mov.u32 %r2,m; mov.u32 %r3,s; setp.ne.u32 %p1,%r1,0; @%p1 bra W;
mbarrier.init.shared.b64 [%r2],64; fence.mbarrier_init.release.cluster; W: bar.sync 0; @%p1 bra X;
mbarrier.arrive.expect_tx.shared.b64 %rd5,[%r2],256; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3],[%rd1],256,[%r2]; bra.uni Y;
X: mbarrier.arrive.shared.b64 %rd5,[%r2]; Y: mbarrier.try_wait.parity.shared.b64 %p2,[%r2],0; @!%p2 bra Y;
shl.b32 %r4,%r1,2; add.u32 %r4,%r4,%r3; ld.shared.u32 %r5,[%r4]; st.global.u32 [%rd4],%r5;)"),
      p, {64});
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], t * 3) << t;
}

// Two in the first phase, one in the second.
TEST_F(MemoryTest, DroppedArrivalsAreNotExpectedAgain) {
  auto out = RunText(
      Kernel1(
          R"(.shared .align 8 .b64 m; mov.u32 %r2,m; mbarrier.init.shared.b64 [%r2],2; mbarrier.arrive_drop.shared.b64 %rd5,[%r2];
mbarrier.arrive.shared.b64 %rd5,[%r2]; mbarrier.test_wait.parity.shared.b64 %p1,[%r2],1; mbarrier.arrive.shared.b64 %rd5,[%r2];
mbarrier.test_wait.parity.shared.b64 %p2,[%r2],1; selp.u32 %r3,10,0,%p1; selp.u32 %r4,1,0,%p2; add.u32 %r5,%r3,%r4; st.global.u32 [%rd4],%r5;)"),
      0, {1});
  EXPECT_EQ(out[0], 1u);
}

TEST_F(MemoryTest, KernelParametersByAddress) {
  auto out = RunText(Kernel1("mov.b64 %rd5,p; cvta.param.u64 %rd6,%rd5; ld.u64 %rd7,[%rd6]; ld.param.u32 %r2,[p+4]; "
                             "cvt.u32.u64 %r3,%rd7; add.u32 %r3,%r3,%r2; st.global.u32 [%rd4],%r3;"),
                     0x700000005, {1});
  EXPECT_EQ(out[0], 12u);
}

// At an address that the program computes, which only the running kernel knows.
TEST_F(MemoryTest, FunctionParametersByIndexEndWithThem) {
  const std::string f =
      ".func (.param .b32 r) f(.param .b32 at, .param .align 16 .b8 s[16]){ .reg .b32 %r<3>; .reg .b64 %rd<4>;\n"
      "ld.param.u32 %r1,[at]; cvt.u64.u32 %rd1,%r1; mov.b64 %rd2,s; add.u64 %rd3,%rd2,%rd1; ld.param.u32 %r2,[%rd3];\n"
      "st.param.b32 [r],%r2; ret; }\n";
  const std::string call =
      "{ .param .b32 a0; .param .align 16 .b8 s0[16]; .param .b32 r0; st.param.b32 [a0],%r2; mov.u32 %r3,77;\n"
      "st.param.b32 [s0+12],%r3; call.uni (r0), f, (a0, s0); ld.param.b32 %r4,[r0]; } st.global.u32 [%rd4],%r4;";
  auto program = launcher_.Load({Kernel1("cvt.u32.u64 %r2,%rd1;" + call, f)});
  ASSERT_TRUE(program);
  const uint64_t out = launcher_.Upload(std::vector<uint32_t>(256));
  const auto run = [&](uint64_t at) { return launcher_.Run(launcher_.Request(program, "k", {1}, {32}, at, out)); };
  const auto inside = run(12);
  EXPECT_FALSE(inside) << inside->message;
  EXPECT_EQ(launcher_.Download<uint32_t>(out, 32), std::vector<uint32_t>(32, 77));
  for (const uint64_t at : {uint64_t{0xFFFFFFF0}, uint64_t{1} << 16}) {
    const auto fault = run(at);
    ASSERT_TRUE(fault) << at;
    EXPECT_EQ(fault->cu_result, kFaultIllegalAddress);
  }
}

TEST_F(MemoryTest, Alloca) {
  auto out = RunText(
      Kernel1("add.u64 %rd5,%rd3,16; stacksave.u64 %rd8; alloca.u64 %rd6,%rd5,16; add.u64 %rd7,%rd6,%rd3; st.local.u32 "
              "[%rd7],%r1; ld.local.u32 %r2,[%rd7]; stackrestore.u64 %rd8; st.global.u32 [%rd4],%r2;"),
      0);
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], t);
}

}  // namespace
}  // namespace tally::sim_driver
