#include "client-shim/transport/copy_threads.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tally::client_shim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// States of this process's copying threads: "S" sleeps, "R" runs.
std::vector<char> CopyThreadStates() {
  std::vector<char> states;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(tasks)) {
    const std::string path = std::string("/proc/self/task/") + entry->d_name;
    std::string name;
    std::getline(std::ifstream(path + "/comm"), name);
    if (name != "tally-copy") continue;
    std::string stat;
    std::getline(std::ifstream(path + "/stat"), stat);
    states.push_back(stat[stat.rfind(')') + 2]);
  }
  ::closedir(tasks);
  return states;
}

std::vector<uint32_t> Numbers(size_t count, uint32_t first) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// The objects are never destroyed, as in the library: their threads never end. Being listed, they are not leaks.
CopyThreads& NewCopyThreads(unsigned num_threads) {
  static auto& all = *new std::vector<CopyThreads*>;
  return *all.emplace_back(new CopyThreads(num_threads));
}

TEST(CopyThreadsTest, NumberOfThreadsLeavesProcessorsToOthers) {
  EXPECT_EQ(CopyThreads::NumFor(1), 0u);
  EXPECT_EQ(CopyThreads::NumFor(2), 0u);
  EXPECT_EQ(CopyThreads::NumFor(4), 1u);
  EXPECT_EQ(CopyThreads::NumFor(16), 3u);
  EXPECT_EQ(CopyThreads::NumFor(1000), 3u);
}

TEST(CopyThreadsTest, EveryByteArrivesWhateverTheSizes) {
  CopyThreads& threads = NewCopyThreads(3);
  const auto source = Numbers(3 * kMiB / 4, 7);
  const auto* from = reinterpret_cast<const std::byte*>(source.data());
  // Of 900,001 bytes the last piece is a slice and a part of one.
  for (const size_t piece :
       {size_t{1}, size_t{4097}, 256 * 1024 - size_t{1}, 256 * 1024 + size_t{1}, size_t{900'001}, kMiB, 3 * kMiB}) {
    std::vector<std::byte> target(3 * kMiB + 64, std::byte{0xEE});
    CopyThreads::Turn turn(threads, 3 * kMiB);
    for (size_t offset = 0; offset < 3 * kMiB; offset += piece) {
      const size_t size = std::min(piece, 3 * kMiB - offset);
      turn.Copy(target.data() + offset, from + offset, size);
      // Done when Copy returns, not some time later.
      ASSERT_EQ(std::memcmp(target.data() + offset, from + offset, size), 0) << piece << " at " << offset;
      if (piece < 4096 && offset > 10'000) break;
    }
    for (size_t i = 3 * kMiB; i < target.size(); ++i) ASSERT_EQ(target[i], std::byte{0xEE}) << "wrote past the end";
  }
}

TEST(CopyThreadsTest, SmallCopiesStartNoThread) {
  CopyThreads& threads = NewCopyThreads(2);
  const size_t before = CopyThreadStates().size();
  std::vector<std::byte> source(2 * kMiB - 1, std::byte{5}), target(2 * kMiB - 1);
  CopyThreads::Turn turn(threads, source.size());
  turn.Copy(target.data(), source.data(), source.size());
  EXPECT_EQ(target, source);
  EXPECT_EQ(CopyThreadStates().size(), before);
}

TEST(CopyThreadsTest, ThreadsSleepBetweenCopies) {
  CopyThreads& threads = NewCopyThreads(2);
  const size_t before = CopyThreadStates().size();
  std::vector<std::byte> source(2 * kMiB, std::byte{5}), target(2 * kMiB);
  {
    CopyThreads::Turn turn(threads, source.size());
    turn.Copy(target.data(), source.data(), source.size());
  }
  EXPECT_EQ(CopyThreadStates().size(), before + 2);
  for (int attempt = 0;; ++attempt) {
    const auto states = CopyThreadStates();
    if (std::count(states.begin(), states.end(), 'S') == static_cast<long>(states.size())) break;
    ASSERT_LT(attempt, 5000) << "a copying thread does not go to sleep";
    ::usleep(2000);
  }
  CopyThreads::Turn next(threads, source.size());
  for (int attempt = 0;; ++attempt) {
    const auto states = CopyThreadStates();
    if (std::ranges::count(states, 'R') != 0) break;
    ASSERT_LT(attempt, 5000) << "the next turn gets nobody's help";
    ::usleep(2000);
  }
}

TEST(CopyThreadsTest, CopiesAtTheSameTimeDoNotMix) {
  CopyThreads& threads = NewCopyThreads(2);
  std::vector<std::thread> callers;
  std::atomic<int> num_wrong{0};
  for (uint32_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint32_t round = 0; round < 50; ++round) {
        const auto source = Numbers(kMiB / 4, caller * 1'000'000 + round);
        std::vector<uint32_t> target(source.size());
        CopyThreads::Turn turn(threads, 2 * kMiB);
        turn.Copy(target.data(), source.data(), kMiB / 2);
        turn.Copy(target.data() + kMiB / 8, source.data() + kMiB / 8, kMiB / 2);
        if (target != source) ++num_wrong;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(num_wrong, 0);
}

// Blocked signals of every copying thread, bit 0 for signal 1.
std::vector<uint64_t> BlockedSignals() {
  std::vector<uint64_t> found;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(tasks)) {
    std::ifstream status(std::string("/proc/self/task/") + entry->d_name + "/status");
    std::string line, name;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:")) name = line.substr(6);
      if (name == "tally-copy" && line.starts_with("SigBlk:"))
        found.push_back(std::stoull(line.substr(8), nullptr, 16));
    }
  }
  ::closedir(tasks);
  return found;
}

TEST(CopyThreadsTest, SignalsOfTheProgramDoNotReachTheThreads) {
  CopyThreads& threads = NewCopyThreads(1);
  std::vector<std::byte> source(kMiB), target(kMiB);
  CopyThreads::Turn turn(threads, 2 * kMiB);
  turn.Copy(target.data(), source.data(), kMiB);
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  const uint64_t of_program = bit(SIGINT) | bit(SIGUSR1) | bit(SIGCHLD);
  // A fault of the copied memory belongs to the program's handler. (While a thread starts, glibc blocks everything.)
  for (int attempt = 0;; ++attempt) {
    const auto blocked = BlockedSignals();
    ASSERT_FALSE(blocked.empty());
    for (const uint64_t set : blocked) ASSERT_EQ(set & of_program, of_program);
    if (std::ranges::all_of(blocked, [&](uint64_t set) { return (set & bit(SIGSEGV)) == 0; })) break;
    ASSERT_LT(attempt, 5000);
    ::usleep(2000);
  }
}

}  // namespace
}  // namespace tally::client_shim
