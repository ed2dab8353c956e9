#include "client-shim/origins/compile_steps.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/images/test_images.h"

namespace tally::client_shim {
namespace {

using images::BytesOf;
using images::ReadImage;

constexpr std::string_view kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

CompileStep Step(std::string_view source, std::string_view options, int architecture = 90) {
  CompileInput input;
  input.source = BytesOf(source);
  input.options = options;
  input.architecture = architecture;
  return StepOf(input, true);
}

class CompileSteps : public testing::Test {
 protected:
  void Learn(const CompileStep& step, std::string_view result) { LearnFrom(step, BytesOf(result), &origins_); }
  void Learn(const CompileStep& step) { LearnFrom(step, cubin_, &origins_); }
  std::string Found() {
    const PtxText found = origins_.Find(cubin_);
    return found != nullptr ? *found : "(unknown)";
  }

  const std::vector<std::byte> cubin_ = ReadImage("sm_90.cubin");
  const std::string ptx_ = std::string(kHead) + "// a";
  PtxOrigins origins_{1 << 20};
};

TEST_F(CompileSteps, BitcodeThenTextThenCode) {
  Learn(Step("BC\xC0\xDE", "-arch=compute_90"), ptx_ + '\0' + "behind its end");
  Learn(Step("BC\xC0\xDE", "-arch=sm_90"));
  EXPECT_EQ(Found(), ptx_);
}

TEST_F(CompileSteps, TextIsItsOwnSource) {
  Learn(Step(ptx_, "-arch=sm_90 -c"));
  EXPECT_EQ(Found(), ptx_);
}

TEST_F(CompileSteps, SourceAndArchitectureMustAgree) {
  Learn(Step("BC one", "-arch=compute_90"), ptx_);
  Learn(Step("BC two", "-arch=sm_90"));
  EXPECT_EQ(Found(), "(unknown)");
  Learn(Step("BC one", "-arch=sm_80", 80));
  EXPECT_EQ(Found(), "(unknown)");
  // Another thread compiles the same at the same time, perhaps with other options.
  std::thread([&] { Learn(Step("BC one", "-arch=sm_90")); }).join();
  EXPECT_EQ(Found(), "(unknown)");
  Learn(Step("BC one", "-arch=sm_90"));
  EXPECT_EQ(Found(), ptx_);
}

TEST_F(CompileSteps, OptionsThatChangeResultsCount) {
  const std::string open = std::string(kHead) + "mul.f32 %f1, %f1, %f2;", rounded = std::string(kHead) + "mul.rn.f32 ";
  Learn(Step(open, "-arch=sm_90 --fmad=false"));
  EXPECT_EQ(Found(), "(unknown)");
  Learn(Step(rounded, "-arch=sm_90 --fmad=false"));
  EXPECT_EQ(Found(), rounded);
  Learn(Step(open, "-arch=sm_90 --maxrregcount=32"));
  EXPECT_EQ(Found(), open);
}

TEST_F(CompileSteps, ResultsThatAreNoPtxTeachNothing) {
  Learn(Step("BC one", "-arch=compute_90"), "warning: no PTX");
  Learn(Step("BC one", "-arch=sm_90"));
  EXPECT_EQ(Found(), "(unknown)");
  EXPECT_EQ(origins_.size_bytes(), 0u);
}

TEST_F(CompileSteps, NothingIsKeptUnasked) {
  CompileInput input;
  input.source = BytesOf(ptx_);
  EXPECT_EQ(StepOf(input, false).ptx, nullptr);
  const auto key = CompileKeyOf(input);
  EXPECT_EQ(StepOf(input, false).key.digest[0], key.digest[0]);
  LearnFrom(StepOf(input, false), cubin_, &origins_);
  EXPECT_EQ(Found(), "(unknown)");
}

}  // namespace
}  // namespace tally::client_shim
