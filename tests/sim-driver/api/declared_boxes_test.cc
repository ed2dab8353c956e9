// Accesses outside declared boxes are reported by PTX line (sim-driver/declared_boxes.h).
#include "sim-driver/declared_boxes.h"

#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeclaredBoxesTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    out_ = Allocate(4096);
    in_ = Allocate(4096);
    Reported();
  }
  void TearDown() override {
    EXPECT_OK(cuTallyDeclareBoxes(nullptr, 0));
    DriverTest::TearDown();
  }
  void Declare(const std::vector<TallyBox>& boxes) {
    static const TallyBox kNone{};
    EXPECT_OK(cuTallyDeclareBoxes(boxes.empty() ? &kNone : boxes.data(), boxes.size()));
  }
  std::string Reported() {
    EXPECT_OK(cuCtxSynchronize());
    std::string text(1 << 16, '\0');
    size_t size = 0;
    EXPECT_OK(cuTallyTakeOutside(text.data(), text.size(), &size));
    return text.substr(0, size);
  }
  // out[i] = in[i] * factor for 32 words; reads the constant, too.
  void Scale() { EXPECT_OK(Launch("scale", 1, 32, nullptr, out_, in_, uint32_t{32})); }
  TallyBox Constant() {
    CUdeviceptr address = 0;
    size_t size = 0;
    EXPECT_OK(cuModuleGetGlobal_v2(&address, &size, (Kernel("scale"), module_), "factor"));
    return {address, size, 0, 1, 1, 0};
  }
  TallyBox Reads(CUdeviceptr at, uint64_t bytes) { return {at, bytes, 0, 1, 1, 0}; }
  TallyBox Writes(CUdeviceptr at, uint64_t bytes) { return {at, bytes, 0, 1, 0, 1}; }

  CUdeviceptr out_ = 0, in_ = 0;
};

TEST_F(DeclaredBoxesTest, WhatIsInsideIsNotReported) {
  Scale();
  Declare({Writes(out_, 128), Reads(in_, 128), Constant()});
  Scale();
  EXPECT_EQ(Reported(), "");
}

TEST_F(DeclaredBoxesTest, OneWordOutsideIsReportedByItsLine) {
  Scale();  // first without: what a worker remembers of it does not hide anything
  EXPECT_OK(cuCtxSynchronize());
  Declare({Writes(out_, 124), Reads(in_, 128), Constant()});
  Scale();
  EXPECT_THAT(Reported(),
              AllOf(HasSubstr("kernel scale, PTX line 75 'st.global.u32 [%rd5], %r4;': write of 4 bytes at "),
                    HasSubstr("is outside the declared boxes (1 times)\n")));
  EXPECT_EQ(Reported(), "");  // taken
  // The write itself was made.
  EXPECT_OK(cuTallyDeclareBoxes(nullptr, 0));
  EXPECT_OK(Launch("fill", 1, 32, nullptr, in_, uint32_t{2}, uint32_t{32}));
  Declare({});
  Scale();
  EXPECT_EQ(Read(out_, 32), std::vector<uint32_t>(32, 6));
  EXPECT_THAT(Reported(), HasSubstr("(32 times)"));
}

TEST_F(DeclaredBoxesTest, ReadingAndWritingAreDifferent) {
  Declare({Reads(out_, 128), Writes(in_, 128), Constant()});
  Scale();
  EXPECT_THAT(Reported(), AllOf(HasSubstr("read of 4 bytes"), HasSubstr("write of 4 bytes")));
  Declare({Reads(out_, 128)});
  EXPECT_OK(Launch("count_blocks", 2, 32, nullptr, out_));
  EXPECT_THAT(Reported(), HasSubstr("atom.global.add"));
}

TEST_F(DeclaredBoxesTest, RowsAreRows) {
  // Words 0 and 1 of every four: half of what is written.
  Declare({{out_, 8, 16, 8, 0, 1}, Reads(in_, 128), Constant()});
  Scale();
  EXPECT_THAT(Reported(), HasSubstr("(16 times)"));
  // A box behind a wide one does not hide it; the last row ends where it ends.
  Declare({{out_, 16, 16, 7, 0, 1}, {out_ + 64, 4, 0, 1, 0, 1}, Reads(in_, 128), Constant()});
  Scale();
  EXPECT_THAT(Reported(), HasSubstr("(4 times)"));
}

// Threads that carry out both in turns remember nothing of the one for the other.
TEST_F(DeclaredBoxesTest, HoldBesideALaunchWithout) {
  const CUstream without = NewStream(), with = NewStream();
  constexpr unsigned kBlocks = 64;
  EXPECT_OK(Launch("scale", 40'000, 32, without, out_, in_, uint32_t{32}));
  Declare({Writes(out_, 124), Reads(in_, 128), Constant()});
  unsigned num_launches = 0;
  do {
    EXPECT_OK(Launch("scale", kBlocks, 32, with, out_, in_, uint32_t{32}));
    EXPECT_OK(cuStreamSynchronize(with));
    ++num_launches;
  } while (cuStreamQuery(without) == CUDA_ERROR_NOT_READY);
  EXPECT_THAT(Reported(), HasSubstr(std::string("(").append(std::to_string(num_launches * kBlocks)) + " times)"));
}

TEST_F(DeclaredBoxesTest, HoldForTheThreadThatDeclaredThem) {
  Declare({});
  std::thread([this] {
    EXPECT_OK(cuCtxSetCurrent(context_));
    Scale();
  }).join();
  EXPECT_EQ(Reported(), "");
}

TEST_F(DeclaredBoxesTest, ACapturedLaunchKeepsItsBoxes) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  Kernel("scale");
  EXPECT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  Declare({Writes(out_, 128), Reads(in_, 128)});
  EXPECT_OK(Launch("scale", 1, 32, stream, out_, in_, uint32_t{32}));
  EXPECT_OK(cuTallyDeclareBoxes(nullptr, 0));
  EXPECT_OK(Launch("scale", 1, 32, stream, in_, out_, uint32_t{32}));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_OK(cuGraphLaunch(exec, stream));
  EXPECT_THAT(Reported(), AllOf(HasSubstr("ld.const.u32"), HasSubstr("(32 times)")));
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph));
}

TEST_F(DeclaredBoxesTest, BadBoxesAreRefused) {
  TallyBox box = Reads(~uint64_t{0} - 3, 8);
  EXPECT_EQ(cuTallyDeclareBoxes(&box, 1), CUDA_ERROR_INVALID_VALUE);
  box = {out_, 4, uint64_t{1} << 40, uint64_t{1} << 40, 1, 1};
  EXPECT_EQ(cuTallyDeclareBoxes(&box, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTallyDeclareBoxes(&box, kTallyMaxBoxes + 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tally::sim_driver
