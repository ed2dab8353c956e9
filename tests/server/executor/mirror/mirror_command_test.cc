#include "server/executor/mirror/mirror_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

namespace tally::server {
namespace {

using shm::MirrorCommand;
using shm::MirrorCommandKind;

MirrorCommand Good(MirrorCommandKind kind) {
  MirrorCommand command{};
  command.kind = kind;
  command.address = uint64_t{1} << 40;
  command.num_bytes = 4096;
  command.row_bytes = 128;
  command.pitch = 256;
  command.rows = 4;
  std::ranges::fill(command.grid, 1u);
  std::ranges::fill(command.block, 1u);
  return command;
}

bool IsGood(const MirrorCommand& command) { return CheckCommand(command).ok(); }

TEST(MirrorCommandTest, EachKindCanBeGood) {
  for (uint32_t kind = 1; kind < shm::kNumMirrorCommands; ++kind) {
    EXPECT_TRUE(IsGood(Good(static_cast<MirrorCommandKind>(kind)))) << kind;
  }
  EXPECT_FALSE(IsGood(Good(MirrorCommandKind::kNone)));
  EXPECT_FALSE(IsGood(Good(static_cast<MirrorCommandKind>(shm::kNumMirrorCommands))));
  EXPECT_FALSE(IsGood(Good(static_cast<MirrorCommandKind>(~0u))));
}

// One change to a good command: at the limit it is good, one beyond it is not.
template <typename Field, typename Value>
void ExpectLimit(MirrorCommandKind kind, Field MirrorCommand::*field, Value last_good) {
  MirrorCommand command = Good(kind);
  command.*field = static_cast<Field>(last_good);
  EXPECT_TRUE(IsGood(command)) << static_cast<uint32_t>(kind) << ' ' << last_good;
  command.*field = static_cast<Field>(last_good + 1);
  EXPECT_FALSE(IsGood(command)) << static_cast<uint32_t>(kind) << ' ' << last_good;
}

TEST(MirrorCommandTest, NumbersHaveLimits) {
  using enum MirrorCommandKind;
  for (const auto kind :
       {kReserve, kMapOwn, kLoadImage, kFunction, kBeginTask, kDropTask, kRun, kLaunch, kFetch, kFill}) {
    ExpectLimit(kind, &MirrorCommand::allocation, shm::kMirrorMaxAllocations - 1);
    ExpectLimit(kind, &MirrorCommand::image, shm::kMirrorMaxImages - 1);
    ExpectLimit(kind, &MirrorCommand::function, shm::kMirrorMaxFunctions - 1);
    ExpectLimit(kind, &MirrorCommand::task, shm::kMirrorMaxTasks - 1);
  }
  for (const auto kind : {kLaunch, kFetch, kWriteBack, kFill, kRun})
    ExpectLimit(kind, &MirrorCommand::stream, shm::kMirrorStreams - 1);
  for (const auto kind : {kMapOther, kUnmap, kFetch, kWriteBack})
    ExpectLimit(kind, &MirrorCommand::gpu, shm::kMirrorMaxDevices - 1);
  for (const auto kind : {kLaunch, kFunction}) ExpectLimit(kind, &MirrorCommand::num_bytes, shm::kMirrorBytes);
  MirrorCommand unmap = Good(kUnmap);
  unmap.gpu = shm::kMirrorSelf;
  EXPECT_TRUE(IsGood(unmap));
  MirrorCommand fetch = Good(kFetch);
  fetch.gpu = shm::kMirrorSelf;
  EXPECT_FALSE(IsGood(fetch));
}

TEST(MirrorCommandTest, NothingWraps) {
  using enum MirrorCommandKind;
  for (const auto kind : {kMapShared, kMapOwn, kMapOther, kUnmap})
    ExpectLimit(kind, &MirrorCommand::offset, ~uint64_t{0} - 4096);
  ExpectLimit(kReserve, &MirrorCommand::address, ~uint64_t{0} - 4096);
  for (const auto kind : {kFetch, kWriteBack, kFill}) {
    ExpectLimit(kind, &MirrorCommand::offset, ~uint64_t{0} - (3 * 256 + 128));
    ExpectLimit(kind, &MirrorCommand::rows, (~uint64_t{0} - 128) / 256 + 1);
  }
}

TEST(MirrorCommandTest, EmptyAndOverlappingBoxesAreNone) {
  using enum MirrorCommandKind;
  for (const auto kind : {kFetch, kWriteBack, kFill}) {
    MirrorCommand command = Good(kind);
    command.rows = 0;
    EXPECT_FALSE(IsGood(command));
    command = Good(kind);
    command.row_bytes = 0;
    EXPECT_FALSE(IsGood(command));
    command = Good(kind);
    command.pitch = 127;
    EXPECT_FALSE(IsGood(command));
    command.rows = 1;  // the pitch of one row does not matter
    EXPECT_TRUE(IsGood(command));
  }
}

TEST(MirrorCommandTest, ShapesOfLaunches) {
  const auto with = [](int axis, bool is_grid, uint32_t size) {
    MirrorCommand command = Good(MirrorCommandKind::kLaunch);
    (is_grid ? command.grid : command.block)[axis] = size;
    return IsGood(command);
  };
  for (int axis = 0; axis < 3; ++axis) {
    for (const bool is_grid : {true, false}) EXPECT_FALSE(with(axis, is_grid, 0));
    EXPECT_TRUE(with(axis, false, 1024));
    EXPECT_FALSE(with(axis, false, 1025));
  }
  EXPECT_TRUE(with(0, true, 2147483647));
  EXPECT_FALSE(with(0, true, 2147483648u));
  EXPECT_TRUE(with(1, true, 65535));
  EXPECT_FALSE(with(2, true, 65536));
  MirrorCommand large = Good(MirrorCommandKind::kLaunch);
  large.block[0] = large.block[1] = 33;
  EXPECT_FALSE(IsGood(large));
}

TEST(MirrorCommandTest, OrdersBringTheirBytesAndNoMore) {
  auto slot = std::make_unique<shm::MirrorSlot>();
  slot->command = Good(MirrorCommandKind::kLaunch);
  slot->command.num_bytes = 3;
  std::memcpy(slot->bytes, "abcd", 4);
  auto order = ReadOrder(*slot);
  ASSERT_TRUE(order.has_value());
  ASSERT_EQ(order->bytes.size(), 3u);
  EXPECT_EQ(std::memcmp(order->bytes.data(), "abc", 3), 0);
  slot->command.kind = MirrorCommandKind::kReserve;
  order = ReadOrder(*slot);
  ASSERT_TRUE(order.has_value());
  EXPECT_TRUE(order->bytes.empty());
  slot->command.kind = MirrorCommandKind::kNone;
  EXPECT_FALSE(ReadOrder(*slot).has_value());
}

// While somebody writes to the slot: what was checked is what is used.
TEST(MirrorCommandTest, ASlotThatChangesWhileItIsRead) {
  auto slot = std::make_unique<shm::MirrorSlot>();
  slot->command = Good(MirrorCommandKind::kLaunch);
  slot->command.num_bytes = 16;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    auto* length = reinterpret_cast<volatile uint64_t*>(&slot->command.num_bytes);
    while (!stop) {
      *length = 16;
      *length = ~uint64_t{0};
    }
  });
  int num_good = 0, num_bad = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((num_good < 1000 || num_bad < 1000) && std::chrono::steady_clock::now() < end) {
    const auto order = ReadOrder(*slot);
    if (!order) {
      ++num_bad;
      continue;
    }
    ++num_good;
    EXPECT_EQ(order->command.num_bytes, 16u);
    EXPECT_EQ(order->bytes.size(), 16u);
  }
  stop = true;
  writer.join();
  EXPECT_GT(num_good, 0);
  EXPECT_GT(num_bad, 0);
}

// A simple reference for the boxes: 128-bit arithmetic.
TEST(MirrorCommandTest, RandomCommandsThatPassAreWithinLimits) {
  std::mt19937_64 random(11);
  const auto number = [&]() -> uint64_t {
    switch (random() % 4) {
      case 0:
        return random() % 32;
      case 1:
        return ~uint64_t{0} - random() % 512;
      default:
        return random() >> (random() % 64);
    }
  };
  int num_passed = 0;
  for (int i = 0; i < 200'000; ++i) {
    MirrorCommand command = Good(static_cast<MirrorCommandKind>(random() % 20));
    for (uint64_t MirrorCommand::*field : {&MirrorCommand::offset, &MirrorCommand::num_bytes, &MirrorCommand::row_bytes,
                                           &MirrorCommand::pitch, &MirrorCommand::rows, &MirrorCommand::address})
      if (random() % 2 == 0) command.*field = number();
    if (!IsGood(command)) continue;
    ++num_passed;
    using Wide = unsigned __int128;
    const Wide limit = ~uint64_t{0};
    const auto kind = command.kind;
    if (kind == MirrorCommandKind::kFill || kind >= MirrorCommandKind::kFetch) {
      const Wide pitch = command.rows == 1 ? 0 : command.pitch;
      EXPECT_LE(Wide{command.offset} + pitch * (command.rows - 1) + command.row_bytes, limit);
      EXPECT_EQ(Wide{BoxExtent(command)}, pitch * (command.rows - 1) + command.row_bytes);
    } else if (kind >= MirrorCommandKind::kMapShared && kind <= MirrorCommandKind::kUnmap) {
      EXPECT_LE(Wide{command.offset} + command.num_bytes, limit);
    } else if (kind == MirrorCommandKind::kReserve) {
      EXPECT_LE(Wide{command.address} + command.num_bytes, limit);
    }
  }
  EXPECT_GT(num_passed, 1000);
}

}  // namespace
}  // namespace tally::server
