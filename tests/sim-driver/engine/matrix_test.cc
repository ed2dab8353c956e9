// Fragments and products of them: mma, ldmatrix, stmatrix, movmatrix, wgmma. Operands are small whole numbers, so that
// each sum is exact; where elements lie is written here anew, from the tables of the PTX ISA.
#include <bit>
#include <cmath>
#include <random>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

enum class Element { kF16, kBf16, kTf32 };

uint32_t Encode(Element element, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (element == Element::kTf32) return bits;
  if (element == Element::kBf16) return bits >> 16;
  if (value == 0) return 0;
  return (bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff);
}
float Decode16(uint16_t bits) {  // of f16, normal numbers
  if ((bits & 0x7fff) == 0) return 0;
  return std::ldexp(1.f + static_cast<float>(bits & 0x3ff) / 1024, (bits >> 10 & 31) - 15) *
         (bits & 0x8000 ? -1.f : 1.f);
}

struct Matrix {
  uint32_t rows, columns;
  std::vector<float> at;
  Matrix(uint32_t r, uint32_t c) : rows(r), columns(c), at(r * c) {}
  float& operator()(uint32_t r, uint32_t c) { return at[r * columns + c]; }
  float operator()(uint32_t r, uint32_t c) const { return at[r * columns + c]; }
};
Matrix Random(uint32_t rows, uint32_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  Matrix matrix(rows, columns);
  for (float& value : matrix.at) value = static_cast<float>(static_cast<int>(random() % 15) - 7);
  return matrix;
}
Matrix ProductOf(const Matrix& a, const Matrix& b, const Matrix& c) {
  Matrix d = c;
  for (uint32_t r = 0; r < a.rows; ++r)
    for (uint32_t n = 0; n < b.columns; ++n)
      for (uint32_t k = 0; k < a.columns; ++k) d(r, n) += a(r, k) * b(k, n);
  return d;
}

std::string Registers(const std::string& prefix, uint32_t count) {
  std::string text = "{";
  for (uint32_t k = 0; k < count; ++k) text += (k ? "," : "") + prefix + std::to_string(k);
  return text + "}";
}
std::string Loads(const std::string& prefix, uint32_t count, const std::string& address, uint32_t first_word) {
  std::string text;
  for (uint32_t k = 0; k < count; ++k)
    text += "ld.global.b32 " + prefix + std::to_string(k) + ",[" + address + "+" +
            std::to_string(4 * (first_word + k)) + "];\n";
  return text;
}
std::string Stores(const std::string& prefix, uint32_t count, const std::string& address) {
  std::string text;
  for (uint32_t k = 0; k < count; ++k)
    text += "st.global.b32 [" + address + "+" + std::to_string(4 * k) + "]," + prefix + std::to_string(k) + ";\n";
  return text;
}

// A kernel k(in, out): %rd3 and %rd4 are this thread's part of `in` and `out`.
std::string Kernel(uint32_t words_in, uint32_t words_out, const std::string& body) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n"
         ".visible .entry k(.param .u64 pi, .param .u64 po){\n.reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .b32 %a<4>, "
         "%b<4>, %u<8>; .reg .f32 %c<4>, %d<128>; .reg .b32 %h<64>; .reg .pred %p<4>; .reg .b64 %da, %db;\n"
         ".shared .align 1024 .b8 s[65536];\n"
         "ld.param.u64 %rd1,[pi]; ld.param.u64 %rd2,[po]; mov.u32 %r1,%tid.x;\nmul.wide.u32 %rd5,%r1," +
         std::to_string(4 * words_in) + "; add.u64 %rd3,%rd1,%rd5; mul.wide.u32 %rd6,%r1," +
         std::to_string(4 * words_out) + "; add.u64 %rd4,%rd2,%rd6;\n" + body + "ret;}\n";
}

std::vector<uint32_t> RunKernel(const std::string& text, const std::vector<uint32_t>& in, uint32_t words_out,
                                uint32_t threads = 32) {
  Launcher launcher;
  const auto program = launcher.Load({text});
  if (!program) return {};
  EXPECT_EQ(program->kernels()[0].unsupported, "");
  const uint64_t from = launcher.Upload(in), to = launcher.Upload(std::vector<uint32_t>(words_out * threads));
  const auto fault = launcher.Run(launcher.Request(program, "k", {1}, {threads}, from, to));
  EXPECT_FALSE(fault) << fault->message;
  return launcher.Download<uint32_t>(to, words_out * threads);
}

// ---------------------------------------------------------------- mma

// The matrices as each lane's registers, PTX ISA "Matrix Fragments for mma.m16n8k16" and its kin.
struct Fragments {
  uint32_t num_a, num_b, num_c;
  std::vector<uint32_t> words;  // of lane 0: a, b, c; of lane 1: ...
};
Fragments Pack(Element element, bool half_sums, const Matrix& a, const Matrix& b, const Matrix& c) {
  const uint32_t depth = a.columns;
  const bool is_tf32 = element == Element::kTf32;
  Fragments f{is_tf32 ? depth / 2 : depth / 4, is_tf32 ? depth / 4 : depth / 8, half_sums ? 2u : 4u, {}};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t group = lane >> 2, t = lane & 3;
    for (uint32_t i = 0; i < f.num_a; ++i) {
      const uint32_t row = group + (i & 1 ? 8 : 0);
      if (is_tf32) {
        f.words.push_back(Encode(element, a(row, t + (i & 2 ? 4 : 0))));
      } else {
        const uint32_t k = 2 * t + (i & 2 ? 8 : 0);
        f.words.push_back(Encode(element, a(row, k)) | Encode(element, a(row, k + 1)) << 16);
      }
    }
    for (uint32_t i = 0; i < f.num_b; ++i) {
      if (is_tf32) {
        f.words.push_back(Encode(element, b(t + 4 * i, group)));
      } else {
        const uint32_t k = 2 * t + 8 * i;
        f.words.push_back(Encode(element, b(k, group)) | Encode(element, b(k + 1, group)) << 16);
      }
    }
    for (uint32_t i = 0; i < f.num_c; ++i) {
      if (half_sums) {
        const uint32_t row = group + 8 * i;
        f.words.push_back(Encode(Element::kF16, c(row, 2 * t)) | Encode(Element::kF16, c(row, 2 * t + 1)) << 16);
      } else {
        f.words.push_back(std::bit_cast<uint32_t>(c(group + (i >= 2 ? 8 : 0), 2 * t + (i & 1))));
      }
    }
  }
  return f;
}

TEST(MatrixTest, MmaMultipliesWhatTheTablesOfThePtxIsaSay) {
  struct Case {
    const char* shape;
    const char* types;
    Element element;
    uint32_t depth;
    bool half_sums;
  };
  for (const Case& one : {Case{"m16n8k16", "f32.f16.f16.f32", Element::kF16, 16, false},
                          Case{"m16n8k16", "f32.bf16.bf16.f32", Element::kBf16, 16, false},
                          Case{"m16n8k16", "f16.f16.f16.f16", Element::kF16, 16, true},
                          Case{"m16n8k8", "f32.f16.f16.f32", Element::kF16, 8, false},
                          Case{"m16n8k8", "f32.bf16.bf16.f32", Element::kBf16, 8, false},
                          Case{"m16n8k8", "f16.f16.f16.f16", Element::kF16, 8, true},
                          Case{"m16n8k8", "f32.tf32.tf32.f32", Element::kTf32, 8, false},
                          Case{"m16n8k4", "f32.tf32.tf32.f32", Element::kTf32, 4, false}}) {
    SCOPED_TRACE(std::string(one.shape) + " " + one.types);
    const Matrix a = Random(16, one.depth, 1), b = Random(one.depth, 8, 2), c = Random(16, 8, 3);
    const Fragments f = Pack(one.element, one.half_sums, a, b, c);
    const std::string sums = one.half_sums ? "%h" : "%d", before = one.half_sums ? "%u" : "%c";
    const uint32_t words = f.num_a + f.num_b + f.num_c;
    const auto out = RunKernel(
        Kernel(words, f.num_c,
               Loads("%a", f.num_a, "%rd3", 0) + Loads("%b", f.num_b, "%rd3", f.num_a) +
                   Loads(before, f.num_c, "%rd3", f.num_a + f.num_b) + "mma.sync.aligned." + one.shape + ".row.col." +
                   one.types + " " + Registers(sums, f.num_c) + "," + Registers("%a", f.num_a) + "," +
                   Registers("%b", f.num_b) + "," + Registers(before, f.num_c) + ";\n" + Stores(sums, f.num_c, "%rd4")),
        f.words, f.num_c);
    ASSERT_EQ(out.size(), 32 * f.num_c);
    const Fragments expected = Pack(one.element, one.half_sums, a, b, ProductOf(a, b, c));
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t i = 0; i < f.num_c; ++i)
        EXPECT_EQ(out[lane * f.num_c + i], expected.words[lane * words + f.num_a + f.num_b + i]) << lane << " " << i;
    }
  }
}

// The same registers on both sides: what is written is not read before all of it was.
TEST(MatrixTest, MmaInPlaceAndWithLanesThatComeApart) {
  const Matrix a = Random(16, 16, 4), b = Random(16, 8, 5), c = Random(16, 8, 6);
  const Fragments f = Pack(Element::kBf16, false, a, b, c);
  const auto out = RunKernel(
      Kernel(10, 4,
             Loads("%a", 4, "%rd3", 0) + Loads("%b", 2, "%rd3", 4) + Loads("%d", 4, "%rd3", 6) +
                 // Lane 5 comes later than the others, and they have gone on without it.
                 "setp.ne.u32 %p1,%r1,5; mov.u32 %r2,0; @%p1 bra M;\nL: add.u32 %r2,%r2,1; setp.lt.u32 %p2,%r2,40000; "
                 "@%p2 bra L;\nM: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0,%d1,%d2,%d3},"
                 "{%a0,%a1,%a2,%a3},{%b0,%b1},{%d0,%d1,%d2,%d3};\n" +
                 Stores("%d", 4, "%rd4")),
      f.words, 4);
  const Fragments expected = Pack(Element::kBf16, false, a, b, ProductOf(a, b, c));
  for (uint32_t k = 0; k < 128; ++k) EXPECT_EQ(out[k], expected.words[k / 4 * 10 + 6 + k % 4]) << k;
}

TEST(MatrixTest, MatrixInstructionsNeedTheWholeWarp) {
  Launcher launcher;
  const auto program = launcher.Load(
      {Kernel(1, 1, "setp.eq.u32 %p1,%r1,9; @%p1 exit;\nmovmatrix.sync.aligned.m8n8.trans.b16 %r2,%r1;\n")});
  ASSERT_TRUE(program);
  const uint64_t buffer = launcher.Upload(std::vector<uint32_t>(64));
  const auto fault = launcher.Run(launcher.Request(program, "k", {1}, {32}, buffer, buffer));
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->message.find("needs all 32 threads of the warp"), std::string::npos) << fault->message;
}

TEST(MatrixTest, WhatIsNotDoneIsRefusedByName) {
  for (const char* body :
       {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%r2,%r3,%r4,%r5},{%a0,%a1,%a2,%a3},{%b0,%b1},{%r2,%r3,%r4,%r5};",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%d0,%d1,%d2,%d3,%d4,%d5,%d6,%d7},{%a0,%a1},{%b0,%b1},"
        "{%d0,%d1,%d2,%d3,%d4,%d5,%d6,%d7};",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%d0,%d1,%d2,%d3},%da,%db,1,1,1;",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r2,%r3},[s];"}) {
    const auto program = CompileProgram(std::vector<std::string_view>{Kernel(1, 1, body)});
    ASSERT_TRUE(program) << body << program.error().ToString();
    EXPECT_NE((*program)->kernels()[0].unsupported, "") << body;
  }
}

// ---------------------------------------------------------------- ldmatrix, stmatrix, movmatrix

// Rows of 16 bytes at 32*row; lane n names row n. `in`: 32 rows of 8 elements.
constexpr const char* kFill =
    "mov.u32 %r2,s; shl.b32 %r3,%r1,5; add.u32 %r2,%r2,%r3; ld.global.v4.b32 {%a0,%a1,%a2,%a3},[%rd3]; "
    "st.shared.v4.b32 [%r2],{%a0,%a1,%a2,%a3}; bar.warp.sync -1;\n";

std::vector<uint32_t> Rows() {
  std::vector<uint32_t> words(128);
  for (uint32_t k = 0; k < 128; ++k) words[k] = (2 * k) | (2 * k + 1) << 16;  // element e of row r: 8*r + e
  return words;
}

TEST(MatrixTest, LdmatrixGivesEachLaneItsTwoElements) {
  for (const uint32_t count : {1u, 2u, 4u}) {
    for (const bool trans : {false, true}) {
      const auto out = RunKernel(
          Kernel(4, count,
                 kFill + std::string("ldmatrix.sync.aligned.m8n8.x") + std::to_string(count) + (trans ? ".trans" : "") +
                     ".shared.b16 " + Registers("%u", count) + ",[%r2];\n" + Stores("%u", count, "%rd4")),
          Rows(), count);
      ASSERT_EQ(out.size(), 32 * count);
      for (uint32_t lane = 0; lane < 32; ++lane) {
        for (uint32_t m = 0; m < count; ++m) {
          const uint32_t row = lane / 4, column = lane % 4 * 2;
          const auto at = [&](uint32_t r, uint32_t c) { return 8 * (8 * m + r) + c; };
          const uint32_t low = trans ? at(column, row) : at(row, column);
          const uint32_t high = trans ? at(column + 1, row) : at(row, column + 1);
          EXPECT_EQ(out[lane * count + m], low | high << 16) << lane << " " << m << trans;
        }
      }
    }
  }
}

TEST(MatrixTest, StmatrixUndoesLdmatrix) {
  for (const bool trans : {false, true}) {
    const std::string suffix = trans ? ".trans" : "";
    const auto out =
        RunKernel(Kernel(4, 4,
                         kFill + ("ldmatrix.sync.aligned.m8n8.x4" + suffix + ".shared.b16 {%u0,%u1,%u2,%u3},[%r2];\n") +
                             "stmatrix.sync.aligned.m8n8.x4" + suffix +
                             ".shared.b16 [%r2+2048],{%u0,%u1,%u2,%u3};\n"
                             "bar.warp.sync -1; ld.shared.v4.b32 {%b0,%b1,%b2,%b3},[%r2+2048];\n" +
                             Stores("%b", 4, "%rd4")),
                  Rows(), 4);
    EXPECT_EQ(out, Rows());
  }
}

TEST(MatrixTest, MovmatrixTransposes) {
  std::vector<uint32_t> in(32);
  for (uint32_t lane = 0; lane < 32; ++lane) in[lane] = (2 * lane) | (2 * lane + 1) << 16;  // row*8 + column
  const auto out = RunKernel(Kernel(1, 1,
                                    "ld.global.b32 %u0,[%rd3]; movmatrix.sync.aligned.m8n8.trans.b16 %u1,%u0; "
                                    "st.global.b32 [%rd4],%u1;\n"),
                             in, 1);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    EXPECT_EQ(out[lane], (8 * column + row) | (8 * (column + 1) + row) << 16) << lane;
  }
}

// ---------------------------------------------------------------- wgmma

// Where element (mn, k) of an operand is in shared memory, in bytes: the canonical layouts of the PTX ISA (9.7.16.5.1),
// in the words of CuTe: 16 elements of k, `span` bytes of a swizzled row (16: not swizzled).
struct Layout {
  uint32_t span;
  bool is_transposed;
  uint32_t leading, stride;  // bytes
};
uint32_t PlaceOf(const Layout& layout, uint32_t mn, uint32_t k) {
  const uint32_t t = layout.span / 2;  // elements of a row
  uint32_t at = 0;
  if (layout.is_transposed && layout.span == 16) {
    at = mn % 8 * 2 + mn / 8 * layout.stride + k % 8 * 16 + k / 8 * layout.leading;
  } else if (layout.is_transposed) {
    at = mn % t * 2 + mn / t * layout.leading + k % 8 * layout.span + k / 8 * layout.stride;
  } else if (layout.span == 16) {
    at = mn % 8 * 16 + mn / 8 * layout.stride + k % 8 * 2 + k / 8 * layout.leading;
  } else {
    at = mn % 8 * layout.span + mn / 8 * layout.stride + k * 2;
  }
  if (layout.span == 32) at ^= (at >> 7 & 1) << 4;
  if (layout.span == 64) at ^= (at >> 7 & 3) << 4;
  if (layout.span == 128) at ^= (at >> 7 & 7) << 4;
  return at;
}
uint64_t DescriptorOf(const Layout& layout, uint32_t start) {
  const uint64_t mode = layout.span == 128 ? 1 : layout.span == 64 ? 2 : layout.span == 32 ? 3 : 0;
  return start >> 4 | uint64_t{layout.leading >> 4} << 16 | uint64_t{layout.stride >> 4} << 32 | mode << 62;
}
// One that leaves no two elements at one place.
Layout LayoutOf(uint32_t span, bool is_transposed, uint32_t rows) {
  if (span == 16 && is_transposed) return {span, true, rows / 8 * 128, 128};
  if (span == 16) return {span, false, 128, 256};
  if (is_transposed) return {span, true, 2 * 8 * span, 8 * span};
  return {span, false, 16, 8 * span};
}

constexpr uint32_t kRightAt = 32768;

struct WarpgroupCase {
  Element element = Element::kBf16;
  bool half_sums = false;
  uint32_t columns = 8;
  Layout left{};
  Layout right{};
  bool left_in_registers = false;
  bool keeps = true;
  int left_scale = 1, right_scale = 1;
};

void CheckWarpgroup(const WarpgroupCase& one, uint32_t seed) {
  SCOPED_TRACE(testing::Message() << one.columns << " columns, spans " << one.left.span << " " << one.right.span
                                  << (one.left_in_registers ? " registers" : ""));
  const Matrix a = Random(64, 16, seed), b = Random(16, one.columns, seed + 1), c = Random(64, one.columns, seed + 2);
  // In: the image of shared memory (64 KiB), then each thread's registers.
  std::vector<uint16_t> image(32768);
  for (uint32_t k = 0; k < 16; ++k) {
    for (uint32_t r = 0; r < 64 && !one.left_in_registers; ++r)
      image[PlaceOf(one.left, r, k) / 2] = static_cast<uint16_t>(Encode(one.element, a(r, k)));
    for (uint32_t n = 0; n < one.columns; ++n)
      image[(kRightAt + PlaceOf(one.right, n, k)) / 2] = static_cast<uint16_t>(Encode(one.element, b(k, n)));
  }
  std::vector<uint32_t> in(16384);
  std::memcpy(in.data(), image.data(), 65536);
  const uint32_t num_sums = one.half_sums ? one.columns / 4 : one.columns / 2;
  const uint32_t words = 4 + num_sums;
  const auto column_of = [](uint32_t lane, uint32_t i) { return i / 4 * 8 + lane % 4 * 2 + (i & 1); };
  const auto row_of = [](uint32_t thread, uint32_t i) { return thread / 32 * 16 + thread % 32 / 4 + (i & 2 ? 8 : 0); };
  for (uint32_t thread = 0; thread < 128; ++thread) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = thread / 32 * 16 + thread % 32 / 4 + (i & 1 ? 8 : 0), k = thread % 4 * 2 + (i & 2 ? 8 : 0);
      in.push_back(Encode(one.element, a(row, k)) | Encode(one.element, a(row, k + 1)) << 16);
    }
    for (uint32_t i = 0; i < num_sums; ++i) {
      if (one.half_sums) {
        const uint32_t at = 4 * (i / 2) + (i & 1 ? 2 : 0);
        in.push_back(Encode(Element::kF16, c(row_of(thread, at), column_of(thread, at))) |
                     Encode(Element::kF16, c(row_of(thread, at), column_of(thread, at) + 1)) << 16);
      } else {
        in.push_back(std::bit_cast<uint32_t>(c(row_of(thread, i), column_of(thread, i))));
      }
    }
  }
  const std::string sums = one.half_sums ? "%h" : "%d", type = one.element == Element::kBf16 ? "bf16" : "f16";
  const std::string left = one.left_in_registers ? "{%a0,%a1,%a2,%a3}" : "%da";
  const std::string text = Kernel(
      words, num_sums,
      "add.u64 %rd3,%rd3,65536; mov.u32 %r2,s; mul.wide.u32 %rd7,%r1,4; add.u64 %rd8,%rd1,%rd7; shl.b32 %r3,%r1,2; "
      "add.u32 %r3,%r3,%r2; mov.u32 %r4,0;\n"
      "L: ld.global.b32 %r5,[%rd8]; st.shared.b32 [%r3],%r5; add.u64 %rd8,%rd8,512; add.u32 %r3,%r3,512; add.u32 "
      "%r4,%r4,1; setp.lt.u32 %p1,%r4,128; @%p1 bra L;\nbar.sync 0;\n" +
          Loads("%a", 4, "%rd3", 0) + Loads(sums, num_sums, "%rd3", 4) + "mov.b64 %da," +
          std::to_string(DescriptorOf(one.left, 0)) + "; mov.b64 %db," +
          std::to_string(DescriptorOf(one.right, kRightAt)) + "; setp.ne.u32 %p2," + (one.keeps ? "1" : "0") +
          ",0;\nwgmma.fence.sync.aligned;\n" + "wgmma.mma_async.sync.aligned.m64n" + std::to_string(one.columns) +
          "k16." + (one.half_sums ? "f16" : "f32") + "." + type + "." + type + " " + Registers(sums, num_sums) + "," +
          left + ",%db,%p2," + std::to_string(one.left_scale) + "," + std::to_string(one.right_scale) + "," +
          (one.left_in_registers ? "" : std::string(one.left.is_transposed ? "1," : "0,")) +
          (one.right.is_transposed ? "1" : "0") +
          ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" + Stores(sums, num_sums, "%rd4"));
  const auto out = RunKernel(text, in, num_sums, 128);
  ASSERT_EQ(out.size(), 128 * num_sums);
  Matrix scaled = a;
  for (float& value : scaled.at) value *= static_cast<float>(one.left_scale * one.right_scale);
  const Matrix expected = ProductOf(scaled, b, one.keeps ? c : Matrix(64, one.columns));
  for (uint32_t thread = 0; thread < 128; ++thread) {
    for (uint32_t i = 0; i < one.columns / 2; ++i) {
      const uint32_t word = out[thread * num_sums + (one.half_sums ? i / 4 * 2 + i % 4 / 2 : i)];
      const float value =
          one.half_sums ? Decode16(static_cast<uint16_t>(word >> 16 * (i & 1))) : std::bit_cast<float>(word);
      ASSERT_EQ(value, expected(row_of(thread, i), column_of(thread, i))) << "thread " << thread << " sum " << i;
    }
  }
}

TEST(MatrixTest, WgmmaReadsEachCanonicalLayout) {
  uint32_t seed = 10;
  for (const uint32_t span : {16u, 32u, 64u, 128u}) {
    for (const bool left_transposed : {false, true}) {
      for (const bool right_transposed : {false, true}) {
        CheckWarpgroup(
            {.columns = 64, .left = LayoutOf(span, left_transposed, 64), .right = LayoutOf(span, right_transposed, 64)},
            seed += 3);
      }
    }
  }
}

TEST(MatrixTest, WgmmaOfEachWidthTypeAndSign) {
  uint32_t seed = 100;
  for (const uint32_t columns : {8u, 24u, 128u, 256u}) {
    for (const bool in_registers : {false, true}) {
      WarpgroupCase one{.columns = columns,
                        .left = LayoutOf(128, false, 64),
                        .right = LayoutOf(128, false, columns),
                        .left_in_registers = in_registers};
      CheckWarpgroup(one, seed += 3);
      one.keeps = false;
      one.element = Element::kF16;
      one.right_scale = -1;
      CheckWarpgroup(one, seed += 3);
      one.keeps = true;
      one.half_sums = true;
      one.left_scale = in_registers ? 1 : -1;
      CheckWarpgroup(one, seed += 3);
    }
  }
}

// A product is one operation of four warps. Warp 0 comes first; when it is through its wait the others have begun, too,
// and what they read may be written. One that never comes is a deadlock.
TEST(MatrixTest, WhoWaitsForAProductWaitsForAllWarpsOfIt) {
  const std::string product =
      "mov.b64 %db,4611686293305360384; wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%d0,%d1,%d2,%d3},{%a0,%a1,%a2,%a3},%db,1,1,1,0; wgmma.commit_group.sync.aligned; "
      "wgmma.wait_group.sync.aligned ";
  const std::string fill =
      "mov.b32 %a0,0; mov.b32 %a1,0; mov.b32 %a2,0; mov.b32 %a3,0; mov.f32 %d0,0f00000000; mov.f32 %d1,%d0; mov.f32 "
      "%d2,%d0; mov.f32 %d3,%d0;\n";
  const auto run = [&](const std::string& late, const std::string& groups) {
    Launcher launcher;
    const auto program = launcher.Load({Kernel(
        1, 1,
        fill +
            "setp.lt.u32 %p1,%r1,32; @%p1 bra P; mov.u32 %r2,0;\nL: add.u32 %r2,%r2,1; setp.lt.u32 %p2,%r2,30000; "
            "@%p2 bra L; " +
            late + "\nst.volatile.global.u32 [%rd2+4],1;\nP: " + product + groups +
            ";\nsetp.ne.u32 %p1,%r1,0; @%p1 bra E; ld.volatile.global.u32 %r3,[%rd2+4]; st.global.u32 "
            "[%rd2],%r3;\nE:\n")});
    const uint64_t out = launcher.Upload(std::vector<uint32_t>(512, 7));
    launcher.Download<uint32_t>(out, 2);
    const auto fault = launcher.Run(launcher.Request(program, "k", {1}, {128}, out, out));
    return std::pair(fault, launcher.Download<uint32_t>(out, 1)[0]);
  };
  const auto [fault, seen] = run("", "0");
  EXPECT_FALSE(fault) << fault->message;
  EXPECT_EQ(seen, 1u);
  const auto [no_fault, nothing] = run("", "1");  // it waits for the group before that one
  EXPECT_FALSE(no_fault) << no_fault->message;
  EXPECT_EQ(nothing, 7u);
  const auto [hang, unused] = run("setp.gt.u32 %p2,%r1,95; @%p2 exit;", "0");
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cu_result, kFaultLaunchTimeout) << hang->message;
  EXPECT_NE(hang->message.find("wgmma.wait_group.sync.aligned 0"), std::string::npos) << hang->message;
}

}  // namespace
}  // namespace tally::sim_driver
