// Boxes of tensors between global and shared memory: edges, swizzling, several blocks, and what is a fault.
#include <algorithm>

#include "sim-driver/engine/tensor_map.h"
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

TensorMap MapOf(uint64_t address, uint8_t element_bytes, std::vector<uint32_t> sizes, std::vector<uint16_t> box,
                uint8_t swizzle_bytes = 0) {
  TensorMap map;
  map.magic = TensorMap::kMagic;
  map.address = address;
  map.num_dimensions = static_cast<uint8_t>(sizes.size());
  map.element_bytes = element_bytes;
  map.swizzle_bytes = swizzle_bytes;
  uint64_t stride = element_bytes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    map.last_index[d] = sizes[d] - 1;
    map.box[d] = box[d];
    map.steps[d] = 1;
    stride = (stride * sizes[d] + 15) / 16 * 16;
    if (d + 1 < sizes.size()) map.strides_bytes[d] = stride;
  }
  return map;
}

// k(map, out, c0, c1, c2, c3): one thread of each block copies a box, then all write the 4096 bytes of shared memory of
// each block to `out`.
std::string LoadKernel(const std::string& copy) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 pm[128], .param .u64 "
         "po, "
         ".param .u32 p0, .param .u32 p1, .param .u32 p2){\n.reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .b16 %rs<4>; "
         ".reg "
         ".pred %p<6>;\n.shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 full;\n"
         "ld.param.u64 %rd2,[po]; ld.param.u32 %r10,[p0]; ld.param.u32 %r11,[p1]; ld.param.u32 %r12,[p2];\n"
         "mov.b64 %rd1,pm; cvta.param.u64 %rd1,%rd1; mov.u32 %r1,%tid.x; mov.u32 %r2,s; mov.u32 %r3,full; mov.u32 "
         "%r4,%ctaid.x;\nsetp.ne.u32 %p1,%r1,0; mov.u32 %r5,0xffffffff;\nmov.u32 %r6,%r2; mov.u32 %r7,0;\n"
         "F: shl.b32 %r8,%r1,2; add.u32 %r8,%r8,%r6; st.shared.b32 [%r8],%r5; add.u32 %r6,%r6,128; add.u32 %r7,%r7,1; "
         "setp.lt.u32 %p2,%r7,32; @%p2 bra F;\n"
         "@%p1 bra B; mbarrier.init.shared::cta.b64 [%r3],1; fence.mbarrier_init.release.cluster; "
         "fence.proxy.async.shared::cta;\nB: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" +
         copy +
         "\nW: mbarrier.try_wait.parity.shared::cta.b64 %p3,[%r3],0; @!%p3 bra W;\nmov.u32 %r6,%r2; mov.u32 %r7,0; "
         "mul.wide.u32 %rd3,%r4,4096; add.u64 %rd2,%rd2,%rd3; mul.wide.u32 %rd4,%r1,4; add.u64 %rd2,%rd2,%rd4;\n"
         "G: shl.b32 %r8,%r1,2; add.u32 %r8,%r8,%r6; ld.shared.b32 %r9,[%r8]; st.global.b32 [%rd2],%r9; add.u64 "
         "%rd2,%rd2,128; add.u32 %r6,%r6,128; add.u32 %r7,%r7,1; setp.lt.u32 %p2,%r7,32; @%p2 bra G;\n"
         "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\nret;}\n";
}
std::string CopyBox(const std::string& dimensions, const std::string& coordinates, uint64_t bytes) {
  return "@%p1 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r3]," + std::to_string(bytes) +
         "; cp.async.bulk.tensor." + dimensions +
         ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2],[%rd1,{" + coordinates + "}],[%r3];";
}

struct Loaded {
  std::optional<Fault> fault;
  std::vector<uint8_t> shared;  // 4096 bytes of each block
};
Loaded Load(Launcher& launcher, const std::string& copy, const TensorMap& map, std::array<int32_t, 3> at,
            uint32_t blocks = 1, uint64_t seed = 0) {
  const auto program = launcher.Load({LoadKernel(copy)});
  if (!program) return {};
  EXPECT_EQ(program->kernels()[0].unsupported, "");
  const uint64_t out = launcher.Upload(std::vector<uint8_t>(4096 * blocks));
  LaunchRequest request = launcher.Request(program, "k", {blocks}, {32}, map, out, static_cast<uint32_t>(at[0]),
                                           static_cast<uint32_t>(at[1]), static_cast<uint32_t>(at[2]));
  request.cluster = {blocks, 1, 1};
  request.schedule_seed = seed;
  const auto fault = launcher.Run(std::move(request));
  return {fault, launcher.Download<uint8_t>(out, 4096 * blocks)};
}

// What a box of 16-bit elements should be: element (x, y, z) of the tensor is x + 100*y + 10000*z + 1, outside 0.
std::vector<uint16_t> Tensor(uint32_t x, uint32_t y, uint32_t z, uint32_t pitch) {
  std::vector<uint16_t> values(pitch * y * z, 0xdead);
  for (uint32_t k = 0; k < z; ++k)
    for (uint32_t j = 0; j < y; ++j)
      for (uint32_t i = 0; i < x; ++i)
        values[(k * y + j) * pitch + i] = static_cast<uint16_t>(i + 100 * j + 10000 * k + 1);
  return values;
}

TEST(TensorCopyTest, WhatLiesOutsideIsZeroAndCountsAsBytes) {
  // 20 columns in rows of 24, boxes of 16 by 4 by 2.
  for (const std::array<int32_t, 3>& at :
       {std::array<int32_t, 3>{0, 0, 0}, {8, 3, 1}, {-5, -2, -1}, {17, 5, 2}, {100, 0, 0}, {0, -100, 0}, {19, 6, 2}}) {
    SCOPED_TRACE(testing::Message() << at[0] << " " << at[1] << " " << at[2]);
    Launcher launcher;
    const uint64_t tensor = launcher.Upload(Tensor(20, 7, 3, 24));
    TensorMap map = MapOf(tensor, 2, {20, 7, 3}, {16, 4, 2});
    ASSERT_EQ(map.strides_bytes[0], 48u);
    const Loaded loaded = Load(launcher, CopyBox("3d", "%r10,%r11,%r12", 256), map, at);
    ASSERT_FALSE(loaded.fault) << loaded.fault->message;
    for (int32_t k = 0; k < 128; ++k) {
      const int32_t x = at[0] + k % 16, y = at[1] + k / 16 % 4, z = at[2] + k / 64;
      const bool is_inside = x >= 0 && x < 20 && y >= 0 && y < 7 && z >= 0 && z < 3;
      uint16_t value = 0;
      std::memcpy(&value, loaded.shared.data() + 2 * k, 2);
      EXPECT_EQ(value, is_inside ? x + 100 * y + 10000 * z + 1 : 0) << k;
    }
    EXPECT_EQ(loaded.shared[256], 0xff);  // not more than the box
  }
}

TEST(TensorCopyTest, EachElementOfARowOfTheBoxMayBeSkippedOver) {
  Launcher launcher;
  const uint64_t tensor = launcher.Upload(Tensor(16, 9, 1, 16));
  TensorMap map = MapOf(tensor, 2, {16, 9}, {8, 5});
  map.steps[1] = 2;  // rows 0, 2, 4 of five
  const Loaded loaded = Load(launcher, CopyBox("2d", "%r10,%r11", 48), map, {4, 3, 0});
  ASSERT_FALSE(loaded.fault) << loaded.fault->message;
  for (uint32_t k = 0; k < 24; ++k) {
    uint16_t value = 0;
    std::memcpy(&value, loaded.shared.data() + 2 * k, 2);
    EXPECT_EQ(value, 4 + k % 8 + 100 * (3 + 2 * (k / 8)) + 1) << k;
  }
}

TEST(TensorCopyTest, SwizzlingExchangesPiecesOfSixteenBytes) {
  for (const uint32_t span : {32u, 64u, 128u}) {
    Launcher launcher;
    const uint32_t columns = span / 2;
    const uint64_t tensor = launcher.Upload(Tensor(columns, 24, 1, columns));
    const TensorMap map =
        MapOf(tensor, 2, {columns, 24}, {static_cast<uint16_t>(columns), 24}, static_cast<uint8_t>(span));
    const Loaded loaded = Load(launcher, CopyBox("2d", "%r10,%r11", 24 * span), map, {0, 0, 0});
    ASSERT_FALSE(loaded.fault) << loaded.fault->message;
    for (uint32_t row = 0; row < 24; ++row) {
      for (uint32_t column = 0; column < columns; ++column) {
        // Of each 128 bytes, numbered by their address, piece p is where p ^ number (as far as the span goes) was.
        const uint32_t at = row * span + 2 * column;
        const uint32_t piece = at / 16 % 8, line = at / 128;
        const uint32_t place = at / 128 * 128 + ((piece ^ (line % (span / 16))) * 16) + at % 16;
        uint16_t value = 0;
        std::memcpy(&value, loaded.shared.data() + place, 2);
        EXPECT_EQ(value, column + 100 * row + 1) << span << " " << row << " " << column;
      }
    }
  }
}

TEST(TensorCopyTest, MulticastReachesTheSamePlaceOfEachBlockNamed) {
  // Block 1 sends to blocks 0, 2 and 3, which only expect; block 1 waits for nothing of it.
  const std::string copy =
      "@%p1 bra W; setp.eq.u32 %p4,%r4,1; @%p4 bra S; mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r3],64; bra W;\n"
      "S: mov.u16 %rs1,13; cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "multicast::cluster [%r2+128],[%rd1,{%r10,%r11}],[%r3],%rs1; mbarrier.arrive.shared::cta.b64 _,[%r3];";
  for (const uint64_t seed : {0, 1, 2, 3}) {
    Launcher launcher;
    const uint64_t tensor = launcher.Upload(Tensor(16, 4, 1, 16));
    const Loaded loaded = Load(launcher, copy, MapOf(tensor, 2, {16, 4}, {8, 4}), {8, 0, 0}, 4, seed);
    ASSERT_FALSE(loaded.fault) << loaded.fault->message;
    for (uint32_t block = 0; block < 4; ++block) {
      for (uint32_t k = 0; k < 32; ++k) {
        uint16_t value = 0;
        std::memcpy(&value, loaded.shared.data() + 4096 * block + 128 + 2 * k, 2);
        EXPECT_EQ(value, block == 1 ? 0xffff : 8 + k % 8 + 100 * (k / 8) + 1) << block << " " << k << " seed " << seed;
      }
      EXPECT_EQ(loaded.shared[4096 * block + 127], 0xff);
    }
  }
}

TEST(TensorCopyTest, BulkCopiesAreMulticastToo) {
  const std::string copy =
      "@%p1 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r3],32; setp.ne.u32 %p4,%r4,0; @%p4 bra W; mov.u16 "
      "%rs1,3; cvt.u64.u32 %rd5,%r10; shl.b64 %rd6,%rd5,32; cvt.u64.u32 %rd5,%r11; or.b64 %rd6,%rd6,%rd5; "
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%r2],[%rd6+16],32,[%r3],%rs1;";
  Launcher launcher;
  std::vector<uint8_t> bytes(64);
  for (uint8_t k = 0; k < 64; ++k) bytes[k] = k;
  const uint64_t from = launcher.Upload(bytes);
  const Loaded loaded =
      Load(launcher, copy, TensorMap{}, {static_cast<int32_t>(from >> 32), static_cast<int32_t>(from), 0}, 2);
  ASSERT_FALSE(loaded.fault) << loaded.fault->message;
  for (uint32_t block = 0; block < 2; ++block)
    for (uint32_t k = 0; k < 32; ++k) EXPECT_EQ(loaded.shared[4096 * block + k], 16 + k);
}

TEST(TensorCopyTest, StoresWriteWhatIsInside) {
  const std::string copy =
      "mov.u32 %r6,%r2; shl.b32 %r8,%r1,2; add.u32 %r8,%r8,%r2; st.shared.b32 [%r8],%r1; bar.warp.sync -1; @%p1 bra W; "
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1,{%r10,%r11}],[%r2]; "
      "cp.async.bulk.commit_group; "
      "cp.async.bulk.wait_group 0; mbarrier.arrive.shared::cta.b64 _,[%r3];";
  Launcher launcher;
  const uint64_t tensor = launcher.Upload(std::vector<uint32_t>(8 * 5, 777));
  const Loaded loaded = Load(launcher, copy, MapOf(tensor, 4, {6, 4}, {8, 4}), {-2, 1, 0});
  ASSERT_FALSE(loaded.fault) << loaded.fault->message;
  const auto out = launcher.Download<uint32_t>(tensor, 40);
  for (uint32_t y = 0; y < 5; ++y)
    for (uint32_t x = 0; x < 8; ++x)
      EXPECT_EQ(out[8 * y + x], x < 6 && y >= 1 && y < 4 ? 8 * (y - 1) + x + 2 : 777) << x << " " << y;
}

TEST(TensorCopyTest, WhatNoDeviceWouldDoIsAFault) {
  Launcher launcher;
  const uint64_t tensor = launcher.Upload(Tensor(16, 8, 1, 16));
  const auto expect = [&](const TensorMap& map, const std::string& copy, const std::string& message) {
    const Loaded loaded = Load(launcher, copy, map, {0, 0, 0});
    ASSERT_TRUE(loaded.fault) << message;
    EXPECT_NE(loaded.fault->message.find(message), std::string::npos) << loaded.fault->message;
  };
  const std::string plain = CopyBox("2d", "%r10,%r11", 64);
  const TensorMap good = MapOf(tensor, 2, {16, 8}, {8, 4});
  TensorMap bad = good;
  bad.magic ^= 1;
  expect(bad, plain, "no tensor map");
  bad = good;
  bad.box[1] = 0;
  expect(bad, plain, "no tensor map");
  expect(MapOf(tensor, 2, {16, 8, 1}, {8, 4, 1}), plain, "another number of dimensions");
  // Larger than its memory: row 2^20 is 32 MiB further, where nothing of this test can be.
  expect(MapOf(tensor, 2, {16, 1u << 21}, {8, 4}), CopyBox("2d", "%r10,1048576", 64), "allocation");
  expect(MapOf(0x1230, 2, {16, 8}, {8, 4}), plain, "not in any allocation");
  expect(MapOf(tensor, 8, {16, 8}, {256, 256}), plain, "larger than shared memory");
  std::string copy = plain;
  copy.replace(copy.find("[%r2]"), 5, "[%r2+16]");
  expect(good, copy, "not a multiple of 128");
  copy = plain;
  copy.replace(copy.find("[%r2]"), 5, "[%r2+8192]");
  expect(good, copy, "outside the block's");
  copy = plain;
  copy.replace(copy.find("[%rd1,"), 6, "[%rd9,");
  expect(good, "mov.u64 %rd9,64;" + copy, "null pointer");
  copy = plain;
  copy.replace(copy.find("complete_tx::bytes"), 18, "complete_tx::bytes.multicast::cluster");
  copy.replace(copy.find("],[%r3];"), 8, "],[%r3],%rs1;");
  expect(good, "mov.u16 %rs1,2;" + copy, "outside the block's");  // there is one block
}

}  // namespace
}  // namespace tally::sim_driver
