#include "server/executor/issue/remembered_accesses.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/server/executor/issue/listed_memory.h"

namespace tally::server {
namespace {

using RememberedLaunch = RememberedAccesses::Launch;

std::vector<std::byte> Bytes(uint64_t value, size_t size = 8) {
  std::vector<std::byte> bytes(std::max<size_t>(size, 8));
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

// So that one can be told from another.
LaunchAccesses Marked(uint64_t number) {
  LaunchAccesses accesses;
  accesses.accesses.push_back({*scheduler::Box::Range(number, 1), scheduler::AccessKind::kRead});
  return accesses;
}

uint64_t MarkOf(const LaunchAccesses* accesses) { return accesses == nullptr ? 0 : accesses->accesses[0].box.begin(); }

const ListedMemory kNoMemory;

uint64_t AllTheSame(const RememberedLaunch&) { return 7; }

TEST(RememberedAccessesTest, FindsWhatIsTheSameInAll) {
  RememberedAccesses remembered;
  const std::vector<std::byte> inputs = Bytes(5);
  const RememberedLaunch launch = {1, {2, 3, 4}, {5, 6, 7}, inputs};
  EXPECT_EQ(remembered.Find(launch, 1, kNoMemory), nullptr);
  EXPECT_EQ(MarkOf(&remembered.Remember(launch, 1, {}, Marked(9))), 9u);
  EXPECT_EQ(MarkOf(remembered.Find(launch, 1, kNoMemory)), 9u);
}

TEST(RememberedAccessesTest, MemoryIsAskedAgainOnceItHasChanged) {
  RememberedAccesses remembered;
  ListedMemory memory;
  memory.Set({{4096, 64}});
  MemoryAnswers answers;
  answers.AllocationOf(memory, 4096);
  const RememberedLaunch launch = {1, {1, 1, 1}, {1, 1, 1}, {}};
  remembered.Remember(launch, memory.generation(), answers, Marked(9));
  memory.Set({{4096, 64}, {8192, 64}});
  EXPECT_EQ(MarkOf(remembered.Find(launch, memory.generation(), memory)), 9u);
  EXPECT_EQ(MarkOf(remembered.Find(launch, memory.generation(), kNoMemory)), 9u) << "asked once";
  memory.Set({{4096, 128}});
  EXPECT_EQ(remembered.Find(launch, memory.generation(), memory), nullptr);
  EXPECT_EQ(remembered.Find(launch, memory.generation(), memory), nullptr) << "refused once, it is not believed later";
  answers = {};
  answers.AllocationOf(memory, 4096);
  remembered.Remember(launch, memory.generation(), answers, Marked(10));
  EXPECT_EQ(MarkOf(remembered.Find(launch, memory.generation(), memory)), 10u);
}

// Windows remember by these names what comes behind what: what touches other memory must not have the same one, though
// the launch is the same.
TEST(RememberedAccessesTest, WhatWasFoundAnewHasANewName) {
  RememberedAccesses remembered;
  const RememberedLaunch launch = {1, {1, 1, 1}, {1, 1, 1}, {}}, other = {2, {1, 1, 1}, {1, 1, 1}, {}};
  const uint64_t first = remembered.Remember(launch, 1, {}, Marked(9)).name;
  const uint64_t second = remembered.Remember(other, 1, {}, Marked(9)).name;
  EXPECT_EQ(remembered.Find(launch, 1, kNoMemory)->name, first);
  const uint64_t third = remembered.Remember(launch, 2, {}, Marked(10)).name;
  EXPECT_EQ((std::set{uint64_t{0}, first, second, third}.size()), 4u);
}

// The same with a hash that says that all launches are the same: only comparing all of it tells them apart.
TEST(RememberedAccessesTest, TellsLaunchesApartWhoseHashesAgree) {
  for (const auto hash : {&RememberedAccesses::HashOf, &AllTheSame}) {
    RememberedAccesses remembered(hash);
    const std::vector<std::byte> inputs = Bytes(5), others = Bytes(6), longer = Bytes(5, 9);
    const RememberedLaunch launch = {1, {2, 3, 4}, {5, 6, 7}, inputs};
    remembered.Remember(launch, 1, {}, Marked(9));
    std::vector<RememberedLaunch> different(8, launch);
    different[0].kernel = 2;
    different[1].grid = {3, 2, 4};
    different[2].grid = {2, 3, 5};
    different[3].block = {5, 6, 8};
    different[4].block = {6, 5, 7};
    different[5].inputs = others;
    different[6].inputs = longer;
    different[7].inputs = {};
    for (size_t k = 0; k < different.size(); ++k) EXPECT_EQ(remembered.Find(different[k], 1, kNoMemory), nullptr) << k;
    EXPECT_EQ(MarkOf(remembered.Find(launch, 1, kNoMemory)), 9u);
  }
}

TEST(RememberedAccessesTest, WhatIsFoundAgainStays) {
  RememberedAccesses remembered(&AllTheSame);
  const std::vector<std::byte> inputs = Bytes(5);
  const auto launch = [&](uint64_t kernel) { return RememberedLaunch{kernel, {1, 1, 1}, {1, 1, 1}, inputs}; };
  for (uint64_t k = 1; k <= 100; ++k) {
    remembered.Remember(launch(k), 1, {}, Marked(k));
    EXPECT_EQ(MarkOf(remembered.Find(launch(1), 1, kNoMemory)), 1u) << k;
  }
}

TEST(RememberedAccessesTest, IsBoundedInBytes) {
  RememberedAccesses remembered;
  constexpr size_t kBytes = 32768;
  constexpr uint64_t kNumLaunches = 4 * RememberedAccesses::kMostBytes / kBytes;
  std::vector<std::vector<std::byte>> inputs;
  for (uint64_t k = 1; k <= kNumLaunches; ++k) {
    inputs.push_back(Bytes(k, kBytes));
    remembered.Remember({1, {1, 1, 1}, {1, 1, 1}, inputs.back()}, 1, {}, Marked(k));
  }
  size_t num_found = 0;
  for (const auto& bytes : inputs)
    num_found += remembered.Find({1, {1, 1, 1}, {1, 1, 1}, bytes}, 1, kNoMemory) != nullptr;
  EXPECT_LE(num_found * kBytes, RememberedAccesses::kMostBytes + 2 * kBytes);
  EXPECT_GT(num_found, 0u);
}

}  // namespace
}  // namespace tally::server
