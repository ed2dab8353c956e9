#include "client-shim/origins/compile_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/images/test_images.h"
#include "tests/support/temporary_directory.h"

namespace tally::client_shim {
namespace {

namespace fs = std::filesystem;
using images::BytesOf;

CompileInput Source(std::string_view text) {
  return {.kind = 1, .source = BytesOf(text), .options = "-O3", .platform = "HOST64", .compiler_build = "today"};
}

class CompileCacheTest : public testing::Test {
 protected:
  std::string Found(const FileCache& cache, std::string_view source) {
    const auto result = cache.Find(CompileKeyOf(Source(source)));
    return result ? std::string(reinterpret_cast<const char*>(result->bytes.get()), result->size_bytes) : "(miss)";
  }
  bool Keep(const FileCache& cache, std::string_view source, std::string_view result) {
    return cache.Keep(CompileKeyOf(Source(source)), BytesOf(result));
  }
  std::vector<fs::path> Files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory_))
      if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(CompileCacheTest, EveryPartOfTheInputCounts) {
  const CompileInput base = Source("text");
  std::vector<CompileInput> inputs(8, base);
  inputs[1].kind = 2;
  inputs[2].source = BytesOf("texT");
  inputs[3].options = "-O2";
  inputs[4].platform = "HOST32";
  inputs[5].compiler_build = "tomorrow";
  inputs[6].architecture = 90;
  inputs[7].flags = 1;
  // The same letters, cut elsewhere.
  inputs.push_back(base);
  inputs.back().options = "-O3HOST";
  inputs.back().platform = "64";
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t j = i + 1; j < inputs.size(); ++j) {
      const auto a = CompileKeyOf(inputs[i]), b = CompileKeyOf(inputs[j]);
      EXPECT_NE(std::memcmp(&a, &b, sizeof(a)), 0) << i << " " << j;
    }
  }
}

TEST_F(CompileCacheTest, ObeysTheEnvironment) {
  for (const char* name : {"CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "XDG_CACHE_HOME"}) ::unsetenv(name);
  ::setenv("CUDA_CACHE_PATH", directory_.c_str(), 1);
  ASSERT_TRUE(Keep(CompileCacheOfEnvironment(), "a", "code"));
  EXPECT_EQ(Files().at(0).parent_path(), directory_ + "/tally-compiled");
  ::setenv("CUDA_CACHE_DISABLE", "1", 1);
  EXPECT_EQ(Found(CompileCacheOfEnvironment(), "a"), "(miss)");
  ::setenv("CUDA_CACHE_DISABLE", "0", 1);
  EXPECT_EQ(Found(CompileCacheOfEnvironment(), "a"), "code");
  ::setenv("CUDA_CACHE_MAXSIZE", "8", 1);
  EXPECT_FALSE(Keep(CompileCacheOfEnvironment(), "b", "code"));
  ::unsetenv("CUDA_CACHE_MAXSIZE");
  ::unsetenv("CUDA_CACHE_PATH");
  ::setenv("HOME", directory_.c_str(), 1);
  ASSERT_TRUE(Keep(CompileCacheOfEnvironment(), "c", "code"));
  EXPECT_TRUE(fs::exists(directory_ + "/.cache/tally/compiled"));
}

}  // namespace
}  // namespace tally::client_shim
