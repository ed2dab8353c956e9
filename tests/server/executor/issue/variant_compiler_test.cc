#include "server/executor/issue/variant_compiler.h"

#include <algorithm>
#include <filesystem>
#include <future>

#include "tests/server/executor/issue/sim_device.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

namespace fs = std::filesystem;

class VariantCompilerTest : public SimDeviceTest {
 protected:
  CompiledVariants Compile(const std::string& kernel) {
    VariantCompiler compiler(driver_, temporary_.path());
    CompileRequest request;
    request.kernel = kernel;
    request.arch = 90;
    request.context = context_;
    std::promise<CompiledVariants> made;
    compiler.Compile(std::move(request), [&](CompiledVariants variants) { made.set_value(std::move(variants)); });
    return made.get_future().get();
  }
  int64_t NumKept() const {
    const fs::recursive_directory_iterator files(temporary_.path());
    return std::count_if(fs::begin(files), fs::end(files), [](const auto& entry) { return entry.is_regular_file(); });
  }

  const TemporaryDirectory temporary_;
};

TEST_F(VariantCompilerTest, WhatCannotBeMadeIsKeptWithItsReason) {
  const CompiledVariants first = Compile("one");
  EXPECT_FALSE(first.slices.exists());
  EXPECT_NE(first.slices.refusal, "");
  EXPECT_EQ(Compile("one").gated.refusal, first.gated.refusal);
  EXPECT_EQ(NumKept(), 1);
  Compile("another");
  EXPECT_EQ(NumKept(), 2);
}

// It may have linked what this one cannot load, and refused what this one can.
TEST_F(VariantCompilerTest, AnotherDriverMakesItsOwn) {
  Compile("one");
  driver_.cuDriverGetVersion = [](int* version) { return *version = 99010, CUDA_SUCCESS; };
  Compile("one");
  EXPECT_EQ(NumKept(), 2);
}

}  // namespace
}  // namespace tally::server
