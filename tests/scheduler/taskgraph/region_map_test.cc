#include "scheduler/taskgraph/region_map.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "tests/scheduler/taskgraph/random_tasks.h"

namespace tally::scheduler {
namespace {

Task Touching(std::vector<Access> accesses) { return {.touches = {Extent::kSaid, std::move(accesses)}}; }
Access Of(AccessKind kind, const Box& box) { return {box, kind}; }

// All that is promised of any map of tasks in a small memory.
void ExpectSound(const std::vector<Task>& tasks, const RegionMap& map, bool may_keep_home) {
  Bytes taken;
  for (RegionId id = 0; id < map.size(); ++id) {
    const Bytes bytes = BytesOf(map.region(id).box);
    ASSERT_EQ(bytes.count(), map.region(id).bytes());
    ASSERT_TRUE((taken & bytes).none()) << "two regions share memory";
    taken |= bytes;
    ASSERT_TRUE(may_keep_home || !map.region(id).is_home_only);
  }
  for (TaskId task = 0; task < tasks.size(); ++task) {
    Bytes reads, writes, exactly;
    for (const RegionUse& use : map.uses(task)) {
      const Bytes bytes = BytesOf(map.region(use.region).box);
      if (use.reads) reads |= bytes;
      if (use.writes) writes |= bytes;
      if (!map.region(use.region).is_home_only) exactly |= bytes;
    }
    Bytes said_reads, said_writes;
    if (tasks[task].touches.extent != Extent::kAnything) {
      for (const Access& access : tasks[task].touches.accesses) {
        if (Reads(access.kind) || !tasks[task].overwrites) said_reads |= BytesOf(access.box);
        if (Writes(access.kind)) said_writes |= BytesOf(access.box);
      }
    }
    ASSERT_EQ(said_reads & ~reads, Bytes());
    ASSERT_EQ(said_writes & ~writes, Bytes());
    ASSERT_EQ(exactly & ~(said_reads | said_writes), Bytes()) << "more than it touches, in a region that may move";
  }
}

TEST(RegionMapTest, RandomTasks) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const bool has_one_pitch = random() % 2 == 0;
    const std::vector<Task> tasks =
        RandomTasks(random, static_cast<uint32_t>(1 + random() % 12), {.has_one_pitch = has_one_pitch});
    const auto map = RegionMap::Make(tasks);
    ASSERT_TRUE(map);
    ASSERT_NO_FATAL_FAILURE(ExpectSound(tasks, *map, !has_one_pitch));
  }
}

// A 5 x 5 matrix of bytes, column by column, in tiles of 2 x 2: those at the edges are ragged.
TEST(RegionMapTest, RaggedTilesOfAMatrix) {
  std::vector<Task> tasks;
  for (uint64_t column = 0; column < 5; column += 2) {
    for (uint64_t row = 0; row < 5; row += 2) {
      tasks.push_back(Touching(
          {Of(AccessKind::kReadWrite, *Box::Rows(column * 5 + row, row == 4 ? 1 : 2, column == 4 ? 1 : 2, 5))}));
    }
  }
  tasks.push_back(Touching({Of(AccessKind::kRead, *Box::Range(0, 25))}));
  const auto map = RegionMap::Make(tasks);
  ASSERT_TRUE(map);
  ExpectSound(tasks, *map, false);
  EXPECT_EQ(map->size(), 9);
  for (TaskId tile = 0; tile < 9; ++tile) EXPECT_EQ(map->uses(tile).size(), 1);
  EXPECT_EQ(map->uses(9).size(), 9) << "the whole matrix is all tiles";
}

TEST(RegionMapTest, AWriteMayKeepWhatWasThereUnlessItIsSaidToOverwrite) {
  Task fill = Touching({Of(AccessKind::kWrite, *Box::Range(0, 8))});
  EXPECT_EQ(RegionMap::Make(std::vector{fill})->uses(0)[0], (RegionUse{.region = 0, .reads = true, .writes = true}));
  fill.overwrites = true;
  EXPECT_EQ(RegionMap::Make(std::vector{fill})->uses(0)[0], (RegionUse{.region = 0, .reads = false, .writes = true}));
}

TEST(RegionMapTest, SeveralPitchesStayHome) {
  const auto map = RegionMap::Make(std::vector{Touching({Of(AccessKind::kRead, *Box::Rows(0, 2, 4, 8))}),
                                               Touching({Of(AccessKind::kRead, *Box::Rows(1, 2, 4, 7))}),
                                               Touching({Of(AccessKind::kRead, *Box::Range(100, 8))})});
  ASSERT_TRUE(map);
  ASSERT_EQ(map->size(), 2);
  EXPECT_TRUE(map->region(0).is_home_only);
  EXPECT_FALSE(map->region(1).is_home_only) << "memory elsewhere is of no matter";
}

// Each of n boxes cuts the one before: n * n uses, if one let it.
std::vector<Task> Staircase(uint64_t n) {
  std::vector<Task> tasks;
  for (uint64_t i = 0; i < n; ++i) tasks.push_back(Touching({Of(AccessKind::kRead, *Box::Range(i, 2 * n))}));
  return tasks;
}

TEST(RegionMapTest, CostIsBounded) {
  EXPECT_EQ(RegionMap::Make(Staircase(100))->size(), 199);
  const auto too_many_uses = RegionMap::Make(Staircase(5000));
  ASSERT_TRUE(too_many_uses);
  ASSERT_EQ(too_many_uses->size(), 1);
  EXPECT_TRUE(too_many_uses->region(0).is_home_only);
  EXPECT_EQ(RegionMap::Make(Staircase(10), {.most_cells = 18})->size(), 1);
  EXPECT_EQ(RegionMap::Make(Staircase(10), {.most_cells = 19})->size(), 19);
  EXPECT_EQ(RegionMap::Make(Staircase(10), {.most_uses = 100})->size(), 19);
  EXPECT_EQ(RegionMap::Make(Staircase(10), {.most_uses = 99})->size(), 1) << "10 pieces each";
  std::vector<Task> three;
  for (uint64_t at = 0; at < 3000; at += 1000) {
    for (const Task& task : Staircase(10)) {
      const Box& box = task.touches.accesses[0].box;
      three.push_back(Touching({Of(AccessKind::kRead, *Box::Range(at + box.begin(), box.length()))}));
    }
  }
  EXPECT_EQ(RegionMap::Make(three, {.most_uses = 300})->size(), 3 * 19);
  EXPECT_EQ(RegionMap::Make(three, {.most_uses = 299})->size(), 2 * 19 + 1) << "of all clusters together";
  std::vector<Task> million(1);
  million[0].touches.extent = Extent::kSaid;
  million[0].touches.accesses.assign(1'000'000, Of(AccessKind::kWrite, *Box::Range(7, 1)));
  EXPECT_EQ(RegionMap::Make(million).error().code(), StatusCode::kResourceExhausted);
  million[0].touches.accesses.assign(RegionMap::kMostAccesses, Of(AccessKind::kWrite, *Box::Range(7, 1)));
  EXPECT_TRUE(RegionMap::Make(million));
}

// Anything that Box takes, at the ends of the address space too.
TEST(RegionMapTest, AnyBoxesAtAll) {
  std::mt19937_64 random(6);
  const auto number = [&] { return random() >> random() % 64; };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Task> tasks;
    const uint64_t pitch = number();
    for (uint64_t i = random() % 8; i-- > 0;) {
      uint64_t address = number();
      if (random() % 4 == 0) address = -address;
      const auto box = Box::Rows(address, number(), 1 + random() % 5, random() % 2 == 0 ? pitch : number());
      if (box) tasks.push_back(Touching({Of(static_cast<AccessKind>(random() % 3), *box)}));
    }
    const auto map = RegionMap::Make(tasks);
    ASSERT_TRUE(map);
    for (TaskId task = 0; task < tasks.size(); ++task) {
      uint64_t bytes = 0;
      bool is_home_only = false;
      for (const RegionUse& use : map->uses(task)) {
        bytes += map->region(use.region).bytes();
        is_home_only |= map->region(use.region).is_home_only;
      }
      const Box& box = tasks[task].touches.accesses[0].box;
      if (!is_home_only) {
        ASSERT_EQ(bytes, box.rows() * box.row_bytes());
      }
    }
    for (RegionId a = 0; a < map->size(); ++a) {
      for (RegionId b = 0; b < a; ++b) ASSERT_FALSE(map->region(a).box.Overlaps(map->region(b).box));
    }
  }
}

}  // namespace
}  // namespace tally::scheduler
