#include "server/executor/issue/remembered_accesses.h"

#include <gtest/gtest.h>

#include <cstring>

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

uint64_t AllTheSame(const RememberedLaunch&) { return 7; }

TEST(RememberedAccessesTest, FindsWhatIsTheSameInAll) {
  RememberedAccesses remembered;
  const std::vector<std::byte> inputs = Bytes(5);
  const RememberedLaunch launch = {1, {2, 3, 4}, {5, 6, 7}, inputs};
  EXPECT_EQ(remembered.Find(launch, 1), nullptr);
  EXPECT_EQ(MarkOf(&remembered.Remember(launch, 1, Marked(9))), 9u);
  EXPECT_EQ(MarkOf(remembered.Find(launch, 1)), 9u);
  EXPECT_EQ(remembered.Find(launch, 2), nullptr) << "memory has changed";
}

// The same with a hash that says that all launches are the same: only comparing all of it tells them apart.
TEST(RememberedAccessesTest, TellsLaunchesApartWhoseHashesAgree) {
  for (const auto hash : {&RememberedAccesses::HashOf, &AllTheSame}) {
    RememberedAccesses remembered(hash);
    const std::vector<std::byte> inputs = Bytes(5), others = Bytes(6), longer = Bytes(5, 9);
    const RememberedLaunch launch = {1, {2, 3, 4}, {5, 6, 7}, inputs};
    remembered.Remember(launch, 1, Marked(9));
    std::vector<RememberedLaunch> different(8, launch);
    different[0].kernel = 2;
    different[1].grid = {3, 2, 4};
    different[2].grid = {2, 3, 5};
    different[3].block = {5, 6, 8};
    different[4].block = {6, 5, 7};
    different[5].inputs = others;
    different[6].inputs = longer;
    different[7].inputs = {};
    for (size_t k = 0; k < different.size(); ++k) EXPECT_EQ(remembered.Find(different[k], 1), nullptr) << k;
    EXPECT_EQ(MarkOf(remembered.Find(launch, 1)), 9u);
  }
}

TEST(RememberedAccessesTest, WhatIsOldGivesWayFirst) {
  RememberedAccesses remembered(&AllTheSame);
  const std::vector<std::byte> inputs = Bytes(5);
  const auto launch = [&](uint64_t kernel) { return RememberedLaunch{kernel, {1, 1, 1}, {1, 1, 1}, inputs}; };
  for (uint64_t k = 1; k <= 4; ++k) {
    remembered.Remember(launch(k), 1, Marked(k));
    remembered.Find(launch(k), 1);
  }
  for (uint64_t k = 3; k <= 6; ++k) remembered.Remember(launch(k), 2, Marked(k + 10));
  for (uint64_t k = 3; k <= 6; ++k) EXPECT_EQ(MarkOf(remembered.Find(launch(k), 2)), k + 10);
}

TEST(RememberedAccessesTest, WhatIsFoundAgainStays) {
  RememberedAccesses remembered(&AllTheSame);
  const std::vector<std::byte> inputs = Bytes(5);
  const auto launch = [&](uint64_t kernel) { return RememberedLaunch{kernel, {1, 1, 1}, {1, 1, 1}, inputs}; };
  for (uint64_t k = 1; k <= 100; ++k) {
    remembered.Remember(launch(k), 1, Marked(k));
    EXPECT_EQ(MarkOf(remembered.Find(launch(1), 1)), 1u) << k;
  }
}

TEST(RememberedAccessesTest, IsBoundedInBytes) {
  RememberedAccesses remembered;
  constexpr size_t kBytes = 32768;
  constexpr uint64_t kNumLaunches = 4 * RememberedAccesses::kMostBytes / kBytes;
  std::vector<std::vector<std::byte>> inputs;
  for (uint64_t k = 1; k <= kNumLaunches; ++k) {
    inputs.push_back(Bytes(k, kBytes));
    remembered.Remember({1, {1, 1, 1}, {1, 1, 1}, inputs.back()}, 1, Marked(k));
  }
  size_t num_found = 0;
  for (const auto& bytes : inputs) num_found += remembered.Find({1, {1, 1, 1}, {1, 1, 1}, bytes}, 1) != nullptr;
  EXPECT_LE(num_found * kBytes, RememberedAccesses::kMostBytes + 2 * kBytes);
  EXPECT_GT(num_found, 0u);
}

}  // namespace
}  // namespace tally::server
