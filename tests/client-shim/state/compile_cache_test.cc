#include "client-shim/state/compile_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace tally::client_shim {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

CompileCache::Input Source(std::string_view text) {
  return {.kind = 1, .source = BytesOf(text), .options = "-O3", .platform = "HOST64", .compiler_build = "today"};
}

class CompileCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tally-compile-cache.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  CompileCache Cache(uint64_t max_bytes = 1 << 20) { return {directory_ + "/deep/down", max_bytes}; }
  std::string Found(const CompileCache& cache, std::string_view source) {
    const auto result = cache.Find(CompileCache::KeyOf(Source(source)));
    return result ? std::string(reinterpret_cast<const char*>(result->bytes.get()), result->size_bytes) : "(miss)";
  }
  bool Keep(const CompileCache& cache, std::string_view source, std::string_view result) {
    return cache.Keep(CompileCache::KeyOf(Source(source)), BytesOf(result));
  }
  std::vector<fs::path> Files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory_))
      if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
  }

  std::string directory_;
};

TEST_F(CompileCacheTest, WhatIsKeptIsFound) {
  EXPECT_EQ(Found(Cache(), "a"), "(miss)");
  ASSERT_TRUE(Keep(Cache(), "a", "machine code"));
  ASSERT_TRUE(Keep(Cache(), "b", ""));
  EXPECT_EQ(Found(Cache(), "a"), "machine code");
  EXPECT_EQ(Found(Cache(), "b"), "");
  ASSERT_TRUE(Keep(Cache(), "a", "newer code"));
  EXPECT_EQ(Found(Cache(), "a"), "newer code");
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(CompileCacheTest, EveryPartOfTheInputCounts) {
  const CompileCache::Input base = Source("text");
  std::vector<CompileCache::Input> inputs(8, base);
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
      const auto a = CompileCache::KeyOf(inputs[i]), b = CompileCache::KeyOf(inputs[j]);
      EXPECT_NE(std::memcmp(&a, &b, sizeof(a)), 0) << i << " " << j;
    }
  }
}

TEST_F(CompileCacheTest, DamageIsAMiss) {
  ASSERT_TRUE(Keep(Cache(), "a", "machine code"));
  const fs::path file = Files().at(0);
  std::ifstream in(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    std::ofstream(file, std::ios::binary) << damaged;
    EXPECT_EQ(Found(Cache(), "a"), "(miss)") << "byte " << i;
    std::ofstream(file, std::ios::binary) << whole.substr(0, i);
    EXPECT_EQ(Found(Cache(), "a"), "(miss)") << "cut at " << i;
  }
  std::ofstream(file, std::ios::binary) << whole << "more";
  EXPECT_EQ(Found(Cache(), "a"), "(miss)");
  std::ofstream(file, std::ios::binary) << whole;
  EXPECT_EQ(Found(Cache(), "a"), "machine code");
}

TEST_F(CompileCacheTest, IsBounded) {
  const CompileCache cache = Cache(64 << 10);
  EXPECT_FALSE(Keep(cache, "too large", std::string(20 << 10, 'x')));
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(Keep(cache, std::to_string(i), std::string(1 << 10, 'x')));
  uint64_t total = 0;
  for (const fs::path& file : Files()) total += fs::file_size(file);
  // It looks about every sixteenth time; 400 results are 400 KB and more.
  EXPECT_LT(total, 256u << 10);
  EXPECT_GT(total, 16u << 10);
}

TEST_F(CompileCacheTest, WithoutAPlaceNothingIsKept) {
  const CompileCache nowhere("", 1 << 20);
  EXPECT_FALSE(Keep(nowhere, "a", "b"));
  EXPECT_EQ(Found(nowhere, "a"), "(miss)");
  std::ofstream(directory_ + "/file") << "in the way";
  const CompileCache below_a_file(directory_ + "/file/cache", 1 << 20);
  EXPECT_FALSE(Keep(below_a_file, "a", "b"));
  EXPECT_EQ(Found(below_a_file, "a"), "(miss)");
}

TEST_F(CompileCacheTest, ObeysTheEnvironment) {
  for (const char* name : {"CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "XDG_CACHE_HOME"}) ::unsetenv(name);
  ::setenv("CUDA_CACHE_PATH", directory_.c_str(), 1);
  ASSERT_TRUE(Keep(CompileCache::OfEnvironment(), "a", "code"));
  EXPECT_EQ(Files().at(0).parent_path(), directory_ + "/tally-compiled");
  ::setenv("CUDA_CACHE_DISABLE", "1", 1);
  EXPECT_EQ(Found(CompileCache::OfEnvironment(), "a"), "(miss)");
  ::setenv("CUDA_CACHE_DISABLE", "0", 1);
  EXPECT_EQ(Found(CompileCache::OfEnvironment(), "a"), "code");
  ::setenv("CUDA_CACHE_MAXSIZE", "8", 1);
  EXPECT_FALSE(Keep(CompileCache::OfEnvironment(), "b", "code"));
  ::unsetenv("CUDA_CACHE_MAXSIZE");
  ::unsetenv("CUDA_CACHE_PATH");
  ::setenv("HOME", directory_.c_str(), 1);
  ASSERT_TRUE(Keep(CompileCache::OfEnvironment(), "c", "code"));
  EXPECT_TRUE(fs::exists(directory_ + "/.cache/tally/compiled"));
}

TEST_F(CompileCacheTest, ReadersNeverSeeHalfAResult) {
  const CompileCache cache = Cache();
  const std::string a(100'000, 'a'), b(60'000, 'b');
  ASSERT_TRUE(Keep(cache, "key", a));
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (int i = 0; i < 300; ++i) Keep(cache, "key", i % 2 == 0 ? b : a);
    is_over = true;
  });
  int num_found = 0;
  while (!is_over) {
    const std::string found = Found(cache, "key");
    EXPECT_TRUE(found == a || found == b) << found.size();
    ++num_found;
  }
  writer.join();
  EXPECT_GT(num_found, 0);
}

}  // namespace
}  // namespace tally::client_shim
