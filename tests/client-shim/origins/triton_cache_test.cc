#include "client-shim/origins/triton_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/images/test_images.h"
#include "tests/support/temporary_directory.h"

namespace tally::client_shim {
namespace {

namespace fs = std::filesystem;
using images::BytesOf;

const std::string kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";
const std::string kFuses = R"({"num_warps": 4, "enable_fp_fusion": true})";

class TritonCacheTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& content) {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path, std::ios::binary) << content;
  }
  void AddKernel(const std::string& folder, const std::string& cubin, const std::string& ptx,
                 const std::string& description = kFuses) {
    Write(folder + "/kernel.ptx", ptx);
    Write(folder + "/kernel.json", description);
    Write(folder + "/kernel.cubin", cubin);
  }
  std::string Found(std::string_view cubin) {
    const PtxText found = cache_.Find(root_, BytesOf(cubin), std::chrono::seconds(20));
    return found != nullptr ? *found : "(unknown)";
  }

  const TemporaryDirectory temporary_;
  const std::string root_ = temporary_.path();
  TritonCache cache_;
};

TEST_F(TritonCacheTest, FindsByContent) {
  AddKernel("A", "code one", kHead + "one");
  AddKernel("B", "code two", kHead + "two");  // of the same size
  fs::create_directories(root_ + "/LAUNCHER");
  Write("LAUNCHER/launcher.so", "not ours");
  Write("lock", "a file");
  EXPECT_EQ(Found("code one"), kHead + "one");
  EXPECT_EQ(Found("code two"), kHead + "two");
  EXPECT_EQ(Found("code six"), "(unknown)");
  EXPECT_EQ(Found("code"), "(unknown)");
  EXPECT_EQ(Found(""), "(unknown)");
}

TEST_F(TritonCacheTest, NoticesWhatComesLater) {
  EXPECT_EQ(Found("code one"), "(unknown)");
  AddKernel("A", "code one", kHead + "one");
  EXPECT_EQ(Found("code one"), kHead + "one");
  // A folder is there before its cubin is.
  fs::create_directories(root_ + "/B");
  EXPECT_EQ(Found("code two"), "(unknown)");
  AddKernel("B", "code two", kHead + "two");
  EXPECT_EQ(Found("code two"), kHead + "two");
  fs::remove_all(root_ + "/A");
  EXPECT_EQ(Found("code one"), "(unknown)");
  EXPECT_EQ(cache_.Find(root_ + "/nowhere", BytesOf("code two")), nullptr);
  EXPECT_EQ(Found("code two"), kHead + "two");
}

TEST_F(TritonCacheTest, GoesOnWhereItsTimeEnded) {
  for (int i = 0; i < 30; ++i)
    AddKernel("FOLDER" + std::to_string(i), "code " + std::to_string(i), kHead + std::to_string(i));
  EXPECT_EQ(cache_.Find(root_, BytesOf("code 7"), std::chrono::nanoseconds(0)), nullptr);
  EXPECT_EQ(Found("code 7"), kHead + "7");
  EXPECT_EQ(Found("code 29"), kHead + "29");
}

TEST_F(TritonCacheTest, TrustsNothingByHalves) {
  const std::string open = kHead + "mul.f32 %f1, %f1, %f1;", rounded = kHead + "mul.rn.f32 %f1, %f1, %f1;";
  AddKernel("A", "code 1", open, R"({"num_warps": 4, "enable_fp_fusion": false})");
  AddKernel("B", "code 2", rounded, R"({"num_warps": 4, "enable_fp_fusion": false})");
  AddKernel("C", "code 3", open, R"({"num_warps": 4, "enable_fp_fusion": true, "ptx_options": "--fmad=false"})");
  AddKernel("D", "code 4", open, R"({"name": "somebody's"})");
  AddKernel("E", "code 5", "no PTX");
  AddKernel("F", "code 6", open);
  EXPECT_EQ(Found("code 1"), "(unknown)");
  EXPECT_EQ(Found("code 2"), rounded);
  EXPECT_EQ(Found("code 3"), "(unknown)");
  EXPECT_EQ(Found("code 4"), "(unknown)");
  EXPECT_EQ(Found("code 5"), "(unknown)");
  EXPECT_EQ(Found("code 6"), open);
}

TEST_F(TritonCacheTest, SurvivesOddFiles) {
  fs::create_directories(root_ + "/A/kernel.cubin");  // a folder
  fs::create_directories(root_ + "/B");
  fs::create_symlink("/dev/zero", root_ + "/B/kernel.cubin");
  fs::create_symlink(root_, root_ + "/LOOP");
  Write("C/kernel.cubin", "");
  AddKernel("D", "code one", kHead);
  fs::remove(root_ + "/D/kernel.ptx");
  ASSERT_EQ(::mkfifo((root_ + "/D/kernel.ptx").c_str(), 0600), 0);  // nobody writes: reading it would wait for ever
  for (int i = 0; i < 1000; ++i) Write("E/file" + std::to_string(i), "x");
  EXPECT_EQ(Found("code one"), "(unknown)");
  AddKernel("F", "code two", kHead);
  EXPECT_EQ(Found("code two"), kHead);
}

TEST_F(TritonCacheTest, BesideACubin) {
  AddKernel("A", "code one", kHead + "one");
  ASSERT_NE(PtxBesideCubin(root_ + "/A/kernel.cubin"), nullptr);
  EXPECT_EQ(*PtxBesideCubin(root_ + "/A/kernel.cubin"), kHead + "one");
  EXPECT_EQ(PtxBesideCubin(root_ + "/A/kernel.ptx"), nullptr);
  EXPECT_EQ(PtxBesideCubin(root_ + "/A/other.cubin"), nullptr);
  EXPECT_EQ(PtxBesideCubin(""), nullptr);
  fs::remove(root_ + "/A/kernel.json");  // made by a Makefile, for all we know
  EXPECT_EQ(PtxBesideCubin(root_ + "/A/kernel.cubin"), nullptr);
}

TEST(TritonCacheOfEnvironment, ReadsItNow) {
  ::setenv("HOME", "/home/me", 1);
  ::unsetenv("TRITON_HOME");
  ::unsetenv("TRITON_CACHE_DIR");
  EXPECT_EQ(TritonCacheOfEnvironment(), "/home/me/.triton/cache");
  ::setenv("TRITON_HOME", "/data", 1);
  EXPECT_EQ(TritonCacheOfEnvironment(), "/data/.triton/cache");
  ::setenv("TRITON_CACHE_DIR", "/tmp/torchinductor_me/triton/0", 1);
  EXPECT_EQ(TritonCacheOfEnvironment(), "/tmp/torchinductor_me/triton/0");
  ::unsetenv("TRITON_CACHE_DIR");
  ::unsetenv("TRITON_HOME");
}

}  // namespace
}  // namespace tally::client_shim
