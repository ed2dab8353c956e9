#include "scheduler/taskgraph/region_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace tally::scheduler {
namespace {

using Kind = DirectoryAction::Kind;
using Actions = std::vector<DirectoryAction>;
constexpr RegionUse Read(RegionId region) { return {.region = region, .reads = true, .writes = false}; }
constexpr RegionUse Update(RegionId region) { return {.region = region, .reads = true, .writes = true}; }
constexpr RegionUse Overwrite(RegionId region) { return {.region = region, .reads = false, .writes = true}; }

RegionDirectory Make(std::vector<uint64_t> region_bytes, std::vector<uint64_t> most_bytes) {
  return *RegionDirectory::Make(region_bytes, most_bytes);
}
Actions Use(RegionDirectory& directory, std::vector<RegionUse> uses, DeviceId device) {
  Actions actions;
  directory.Use(uses, device, actions);
  return actions;
}

TEST(RegionDirectoryTest, StatesOfACopy) {
  RegionDirectory directory = Make({10}, {0, 100, 100});
  EXPECT_EQ(directory.state(0, 0), CopyState::kShared);
  EXPECT_EQ(directory.state(0, 1), CopyState::kInvalid);
  EXPECT_EQ(Use(directory, {Read(0)}, 1), (Actions{{Kind::kMove, 0, 0, 1}}));
  EXPECT_EQ(Use(directory, {Read(0)}, 1), Actions()) << "it is there";
  EXPECT_EQ(directory.state(0, 1), CopyState::kShared);
  EXPECT_EQ(Use(directory, {Update(0)}, 1), Actions());
  EXPECT_EQ(directory.state(0, 1), CopyState::kModified);
  EXPECT_EQ(directory.state(0, 0), CopyState::kInvalid);
  EXPECT_EQ(Use(directory, {Read(0)}, 2), (Actions{{Kind::kMove, 0, 1, 2}})) << "not from home";
  EXPECT_EQ(directory.state(0, 1), CopyState::kShared);
  EXPECT_EQ(Use(directory, {Overwrite(0)}, 0), Actions()) << "nothing of it is kept";
  EXPECT_EQ(directory.state(0, 2), CopyState::kInvalid);
  EXPECT_EQ(directory.version(0), 2);
  EXPECT_EQ(directory.owner(0), kHome);
  EXPECT_EQ(directory.moved_bytes(), 20);
}

TEST(RegionDirectoryTest, WhatWasUsedLongestAgoMakesRoom) {
  RegionDirectory directory = Make({10, 10, 10}, {0, 20});
  Use(directory, {Read(0)}, 1);
  Use(directory, {Read(1)}, 1);
  Use(directory, {Read(0)}, 1);
  EXPECT_EQ(Use(directory, {Read(2)}, 1), (Actions{{Kind::kDrop, 1, 1, 1}, {Kind::kMove, 2, 0, 1}}));
  EXPECT_EQ(directory.used_bytes(1), 20);
}

TEST(RegionDirectoryTest, WhatNobodyElseHasGoesHomeFirst) {
  RegionDirectory directory = Make({10, 10}, {0, 10});
  Use(directory, {Update(0)}, 1);
  EXPECT_EQ(Use(directory, {Read(1)}, 1),
            (Actions{{Kind::kMove, 0, 1, 0}, {Kind::kDrop, 0, 1, 1}, {Kind::kMove, 1, 0, 1}}));
  EXPECT_EQ(directory.state(0, 0), CopyState::kShared);
}

TEST(RegionDirectoryTest, WhatIsNoLongerValidMakesRoomFirst) {
  RegionDirectory directory = Make({10, 10, 10}, {0, 20, 20});
  Use(directory, {Read(0)}, 1);
  Use(directory, {Read(1)}, 1);
  Use(directory, {Update(1)}, 2);
  EXPECT_EQ(Use(directory, {Read(2)}, 1), (Actions{{Kind::kDrop, 1, 1, 1}, {Kind::kMove, 2, 0, 1}}));
}

TEST(RegionDirectoryTest, WhatATaskUsesMakesNoRoomForItself) {
  RegionDirectory directory = Make({10, 10, 10}, {0, 20});
  Use(directory, {Read(0)}, 1);
  Use(directory, {Read(1)}, 1);
  EXPECT_EQ(Use(directory, {Read(0), Read(2)}, 1), (Actions{{Kind::kDrop, 1, 1, 1}, {Kind::kMove, 2, 0, 1}}));
  EXPECT_TRUE(directory.Fits(std::vector{Read(0), Read(1)}, 1));
  EXPECT_FALSE(directory.Fits(std::vector{Read(0), Read(1), Read(2)}, 1));
  EXPECT_TRUE(directory.Fits(std::vector{Read(0), Read(1), Read(2)}, 0)) << "home has room for all";
}

TEST(RegionDirectoryTest, HomeIsNotTheOnlySource) {
  RegionDirectory directory = Make({10}, {0, 10, 10});
  Use(directory, {Read(0)}, 1);
  EXPECT_EQ(Use(directory, {Read(0)}, 2), (Actions{{Kind::kMove, 0, 1, 2}})) << "it has sent nothing yet";
}

TEST(RegionDirectoryTest, AllGoesHome) {
  RegionDirectory directory = Make({10, 10, 10}, {0, 100});
  Use(directory, {Update(0), Read(1)}, 1);
  Actions actions;
  directory.BringHome(false, actions);
  EXPECT_EQ(actions, (Actions{{Kind::kMove, 0, 1, 0}}));
  EXPECT_EQ(directory.state(0, 1), CopyState::kShared);
  actions.clear();
  directory.BringHome(true, actions);
  EXPECT_EQ(actions, Actions());
  EXPECT_EQ(directory.state(0, 1), CopyState::kInvalid);
  EXPECT_EQ(directory.state(1, 1), CopyState::kInvalid);
}

TEST(RegionDirectoryTest, CostIsBounded) {
  const std::vector<uint64_t> regions(RegionDirectory::kMostCopies / 4, 1);
  EXPECT_TRUE(RegionDirectory::Make(regions, std::vector<uint64_t>(4, 1)));
  EXPECT_EQ(RegionDirectory::Make(regions, std::vector<uint64_t>(5, 1)).error().code(), StatusCode::kResourceExhausted);
}

// Contents as numbers that are carried by the actions alone: each read finds what was written last.
class Contents {
 public:
  Contents(const std::vector<uint64_t>& region_bytes, size_t num_devices)
      : bytes_(region_bytes), last_(region_bytes.size()), at_(num_devices) {
    for (RegionId region = 0; region < region_bytes.size(); ++region) at_[kHome][region] = 0;
  }
  void Carry(const Actions& actions) {
    for (const DirectoryAction& action : actions) {
      if (action.kind == Kind::kDrop) {
        ASSERT_NE(action.device, kHome);
        ASSERT_TRUE(at_[action.device].erase(action.region)) << "nothing was there";
        continue;
      }
      ASSERT_NE(action.from, action.device);
      ASSERT_TRUE(at_[action.from].contains(action.region));
      ASSERT_EQ(at_[action.from][action.region], last_[action.region]) << "moved what is old";
      at_[action.device][action.region] = last_[action.region];
      moved_bytes += bytes_[action.region];
    }
  }
  void Run(const std::vector<RegionUse>& uses, DeviceId device) {
    for (const RegionUse& use : uses) {
      if (use.reads) {
        ASSERT_TRUE(at_[device].contains(use.region));
        ASSERT_EQ(at_[device][use.region], last_[use.region]) << "read what is old";
      }
    }
    for (const RegionUse& use : uses) {
      if (use.writes) at_[device][use.region] = ++last_[use.region];
    }
  }
  uint64_t UsedBytes(DeviceId device) const {
    uint64_t bytes = 0;
    for (const auto& [region, contents] : at_[device]) bytes += bytes_[region];
    return bytes;
  }
  bool IsHome() const {
    return std::ranges::all_of(at_[kHome], [&](const auto& copy) { return copy.second == last_[copy.first]; });
  }
  bool IsLast(RegionId region, DeviceId device) const {
    const auto found = at_[device].find(region);
    return found != at_[device].end() && found->second == last_[region];
  }
  uint32_t last(RegionId region) const { return last_[region]; }

  uint64_t moved_bytes = 0;

 private:
  const std::vector<uint64_t> bytes_;
  std::vector<uint32_t> last_;
  std::vector<std::map<RegionId, uint32_t>> at_;
};

TEST(RegionDirectoryTest, RandomUses) {
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    const size_t num_devices = 1 + random() % 5;
    std::vector<uint64_t> region_bytes(1 + random() % 12);
    for (uint64_t& bytes : region_bytes) bytes = 1 + random() % 20;
    std::vector<uint64_t> most_bytes(num_devices);
    for (uint64_t& bytes : most_bytes) bytes = random() % 60;
    RegionDirectory directory = Make(region_bytes, most_bytes);
    Contents contents(region_bytes, num_devices);
    for (int i = 0; i < 60; ++i) {
      Actions actions;
      if (random() % 20 == 0) {
        const bool writes = random() % 2 == 0;
        directory.BringHome(writes, actions);
        ASSERT_NO_FATAL_FAILURE(contents.Carry(actions));
        ASSERT_TRUE(contents.IsHome());
        std::vector<RegionUse> all;
        for (RegionId region = 0; writes && region < region_bytes.size(); ++region) {
          if (directory.version(region) != contents.last(region)) all.push_back(Overwrite(region));
        }
        contents.Run(all, kHome);
      } else {
        const auto device = static_cast<DeviceId>(random() % num_devices);
        std::set<RegionId> touched;
        std::vector<RegionUse> uses;
        for (uint64_t k = random() % 4; k-- > 0;) touched.insert(static_cast<RegionId>(random() % region_bytes.size()));
        for (const RegionId region : touched) {
          uses.push_back(std::array{Read(region), Update(region), Overwrite(region)}[random() % 3]);
        }
        if (!directory.Fits(uses, device)) continue;
        directory.Use(uses, device, actions);
        ASSERT_NO_FATAL_FAILURE(contents.Carry(actions));
        ASSERT_NO_FATAL_FAILURE(contents.Run(uses, device));
      }
      for (DeviceId device = 1; device < num_devices; ++device) {
        ASSERT_LE(directory.used_bytes(device), most_bytes[device]);
        ASSERT_EQ(directory.used_bytes(device), contents.UsedBytes(device));
      }
      ASSERT_EQ(directory.moved_bytes(), contents.moved_bytes);
      for (RegionId region = 0; region < region_bytes.size(); ++region) {
        for (DeviceId device = 0; device < num_devices; ++device) {
          ASSERT_EQ(directory.state(region, device) != CopyState::kInvalid, contents.IsLast(region, device));
        }
      }
    }
    Actions actions;
    directory.BringHome(false, actions);
    ASSERT_NO_FATAL_FAILURE(contents.Carry(actions));
    ASSERT_TRUE(contents.IsHome());
  }
}

}  // namespace
}  // namespace tally::scheduler
