#include "base/file_cache.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

class FileCacheTest : public testing::Test {
 protected:
  FileCache Cache(uint64_t max_bytes = 1 << 20) { return {directory_ + "/deep/down", max_bytes}; }
  std::string Found(const FileCache& cache, std::string_view source) {
    const auto result = cache.Find(FileCache::KeyOf({BytesOf(source)}));
    return result ? std::string(reinterpret_cast<const char*>(result->bytes.get()), result->size_bytes) : "(miss)";
  }
  bool Keep(const FileCache& cache, std::string_view source, std::string_view result) {
    return cache.Keep(FileCache::KeyOf({BytesOf(source)}), BytesOf(result));
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

TEST_F(FileCacheTest, WhatIsKeptIsFound) {
  EXPECT_EQ(Found(Cache(), "a"), "(miss)");
  ASSERT_TRUE(Keep(Cache(), "a", "machine code"));
  ASSERT_TRUE(Keep(Cache(), "b", ""));
  EXPECT_EQ(Found(Cache(), "a"), "machine code");
  EXPECT_EQ(Found(Cache(), "b"), "");
  ASSERT_TRUE(Keep(Cache(), "a", "newer code"));
  EXPECT_EQ(Found(Cache(), "a"), "newer code");
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(FileCacheTest, PartsCountWithTheirLengths) {
  const auto a = FileCache::KeyOf({BytesOf("ab"), BytesOf("c")}), b = FileCache::KeyOf({BytesOf("a"), BytesOf("bc")});
  EXPECT_NE(std::memcmp(a.digest, b.digest, sizeof(a.digest)), 0);
  const auto c = FileCache::KeyOf({BytesOf("ab"), BytesOf("c")});
  EXPECT_EQ(std::memcmp(&a, &c, sizeof(a)), 0);
}

TEST_F(FileCacheTest, DamageIsAMiss) {
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

TEST_F(FileCacheTest, IsBounded) {
  const FileCache cache = Cache(64 << 10);
  EXPECT_FALSE(Keep(cache, "too large", std::string(20 << 10, 'x')));
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(Keep(cache, std::to_string(i), std::string(1 << 10, 'x')));
  uint64_t total = 0;
  for (const fs::path& file : Files()) total += fs::file_size(file);
  // It looks about every sixteenth time; 400 results are 400 KB and more.
  EXPECT_LT(total, 256u << 10);
  EXPECT_GT(total, 16u << 10);
}

TEST_F(FileCacheTest, WhatIsUsedStaysWhenThereIsNoRoom) {
  const FileCache cache = Cache(64 << 10);
  ASSERT_TRUE(Keep(cache, "favourite", "machine code"));
  for (int i = 0; i < 200; ++i) {
    const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
    for (const fs::path& file : Files()) fs::last_write_time(file, long_ago);
    ASSERT_EQ(Found(cache, "favourite"), "machine code") << i;
    ASSERT_TRUE(Keep(cache, std::to_string(i), std::string(1 << 10, 'x')));
  }
  EXPECT_LT(Files().size(), 200u);
}

TEST_F(FileCacheTest, WithoutAPlaceNothingIsKept) {
  const FileCache nowhere("", 1 << 20);
  EXPECT_FALSE(Keep(nowhere, "a", "b"));
  EXPECT_EQ(Found(nowhere, "a"), "(miss)");
  std::ofstream(directory_ + "/file") << "in the way";
  const FileCache below_a_file(directory_ + "/file/cache", 1 << 20);
  EXPECT_FALSE(Keep(below_a_file, "a", "b"));
  EXPECT_EQ(Found(below_a_file, "a"), "(miss)");
}

// A file system of 64 KiB at `directory`, for this process only.
bool MountSmallDisk(const std::string& directory) {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", directory.c_str(), "tmpfs", 0, "size=64k") == 0;
}

TEST_F(FileCacheTest, AFullDiskIsOneSentenceAndLeavesNoHalfFile) {
  const pid_t probe = ::fork();
  if (probe == 0) ::_exit(MountSmallDisk(directory_) ? 0 : 1);
  int state = 0;
  ::waitpid(probe, &state, 0);
  if (state != 0) GTEST_SKIP() << "a file system cannot be mounted without root's rights";
  const auto fill = [&] {
    const FileCache cache = Cache();
    if (!MountSmallDisk(directory_) || !Keep(cache, "small", "fits")) ::_exit(1);
    for (int i = 0; i < 3; ++i) {
      if (Keep(cache, "large", std::string(100 << 10, 'x'))) ::_exit(2);
    }
    if (Found(cache, "small") != "fits" || Files().size() != 1) ::_exit(3);
    ::_exit(0);
  };
  EXPECT_EXIT(
      fill(), testing::ExitedWithCode(0),
      "^tally\\[[0-9]+\\] W cannot keep what was compiled in '.*/deep/down' \\(No space left on device\\)[^\n]*\n$");
}

TEST_F(FileCacheTest, ReadersNeverSeeHalfAResult) {
  const FileCache cache = Cache();
  const std::string a(100'000, 'a'), b(60'000, 'b');
  ASSERT_TRUE(Keep(cache, "key", a));
  std::atomic<bool> is_over{false};
  std::atomic<int> num_found{0};
  std::thread writer([&] {
    for (int i = 0; i < 300 || num_found == 0; ++i) Keep(cache, "key", i % 2 == 0 ? b : a);
    is_over = true;
  });
  while (!is_over) {
    const std::string found = Found(cache, "key");
    EXPECT_TRUE(found == a || found == b) << found.size();
    ++num_found;
  }
  writer.join();
}

// Somebody else's code would run in our process, or in the executor that serves others.
TEST_F(FileCacheTest, WhatBelongsToAnotherUserIsNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_TRUE(Keep(Cache(), "a", "machine code"));
  ASSERT_EQ(::chown(Files().front().c_str(), 54321, 54321), 0);
  EXPECT_EQ(Found(Cache(), "a"), "(miss)");
}

TEST_F(FileCacheTest, WhatOthersCanWriteIsNotRead) {
  ASSERT_TRUE(Keep(Cache(), "a", "machine code"));
  const std::string file = Files().front();
  ::chmod(file.c_str(), 0666);
  EXPECT_EQ(Found(Cache(), "a"), "(miss)");
  ::chmod(file.c_str(), 0600);
  EXPECT_EQ(Found(Cache(), "a"), "machine code");
  ::chmod(directory_.c_str(), 0777);  // anybody can put another directory in the place of "deep"
  EXPECT_EQ(Found(Cache(), "a"), "(miss)");
  EXPECT_FALSE(Keep(Cache(), "b", "machine code"));
  ::chmod(directory_.c_str(), 01777);
  EXPECT_EQ(Found(Cache(), "a"), "machine code");
}

}  // namespace
}  // namespace tally
