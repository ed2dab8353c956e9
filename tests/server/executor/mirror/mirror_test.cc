// Home's end, with mirrors that do what they should and with some that do not.
#include "server/executor/mirror/mirror.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/mapped_region.h"
#include "server/executor/driver/address_arena.h"
#include "tests/server/executor/mirror/lying_mirror.h"
#include "tests/server/executor/mirror/mirror_world.h"
#include "tests/server/executor/mirror/task_shapes.h"

namespace tally::server {
namespace {

using shm::MirrorCommandKind;
using std::chrono::milliseconds;

class MirrorTest : public testing::Test {
 protected:
  MirrorTest() : world_(2, TaskImage(), TaskKernels()) {}
  CUresult Do(const shm::MirrorCommand& command, int fd = -1) { return world_.mirror(1).Do(command, {}, fd); }
  static shm::MirrorCommand Command(MirrorCommandKind kind, uint32_t allocation = 0, uint64_t offset = 0,
                                    uint64_t num_bytes = 0) {
    return MirrorWorld::Command(kind, allocation, offset, num_bytes);
  }
  MirrorWorld world_;
};

TEST_F(MirrorTest, CommandsThatFailAloneBreakNothing) {
  const HomeAllocation& memory = world_.Allocate(2 * kGranule);
  using enum MirrorCommandKind;
  // Not there, outside, cut through granules, twice.
  EXPECT_EQ(Do(Command(kRelease, 7)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Do(Command(kMapOwn, 7, 0, kGranule)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Do(Command(kMapOwn, 0, 2 * kGranule, kGranule)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Do(Command(kMapOwn, 0, kGranule, 2 * kGranule)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Do(Command(kMapOwn, 0, 4096, kGranule)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Do(Command(kMapShared, 0, 0, 2 * kGranule), memory.fd()), CUDA_SUCCESS);
  EXPECT_EQ(Do(Command(kMapShared, 0, 0, 2 * kGranule), memory.fd()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Do(Command(kUnmap, 0, 0, kGranule)), CUDA_ERROR_INVALID_VALUE);
  shm::MirrorCommand self = Command(kUnmap, 0, 0, 2 * kGranule);
  self.gpu = shm::kMirrorSelf;
  EXPECT_EQ(Do(self), CUDA_SUCCESS);
  EXPECT_EQ(Do(self), CUDA_ERROR_INVALID_VALUE);
  // More memory than the GPU has.
  shm::MirrorCommand huge = Command(kReserve, 2, 0, uint64_t{64} << 30);
  huge.address = AddressArena::kApart[1].begin;  // of nobody's yet: it has no memory of others
  EXPECT_EQ(Do(huge), CUDA_SUCCESS);
  EXPECT_EQ(Do(Command(kMapOwn, 2, 0, uint64_t{64} << 30)), CUDA_ERROR_OUT_OF_MEMORY);
  // Addresses that are taken there: by itself, now.
  shm::MirrorCommand again = Command(kReserve, 1, 0, kGranule);
  again.address = huge.address;
  EXPECT_EQ(Do(again), CUDA_ERROR_NOT_SUPPORTED);
  // Work on what is not there.
  shm::MirrorCommand launch = Command(kLaunch);
  launch.function = 99;
  launch.grid[0] = launch.grid[1] = launch.grid[2] = launch.block[0] = launch.block[1] = launch.block[2] = 1;
  EXPECT_EQ(Do(launch), CUDA_ERROR_INVALID_VALUE);
  shm::MirrorCommand fetch = Command(kFetch);
  fetch.row_bytes = 64;
  fetch.rows = 1;
  EXPECT_EQ(Do(fetch), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(world_.mirror(1).error(), CUDA_SUCCESS);
  EXPECT_EQ(Do(Command(kMapOwn, 0, 0, kGranule)), CUDA_SUCCESS);
}

// Each mirror has memory of three others then, for which it reserves addresses by itself.
TEST(MirrorAddresses, WhatComesNextAtHomeIsFreeEverywhere) {
  MirrorWorld world(4, TaskImage(), TaskKernels());
  for (int i = 0; i < 12; ++i) world.GiveOwn(world.Allocate(kGranule));
}

TEST_F(MirrorTest, ImagesThatDoNotLoadBreakNothing) {
  auto file = CreateSealedMemfd("image", 4096);
  ASSERT_TRUE(file.has_value());
  shm::MirrorCommand load = Command(MirrorCommandKind::kLoadImage, 0, 0, 4096);
  load.image = 5;
  EXPECT_NE(Do(load, file->get()), CUDA_SUCCESS);
  load.num_bytes = 8192;  // more than the file has
  EXPECT_EQ(Do(load, file->get()), CUDA_ERROR_INVALID_VALUE);
  load.image = 0;  // taken
  EXPECT_EQ(Do(load, file->get()), CUDA_ERROR_INVALID_VALUE);
  shm::MirrorCommand unload = Command(MirrorCommandKind::kUnloadImage);
  EXPECT_EQ(Do(unload), CUDA_SUCCESS);
  EXPECT_EQ(Do(unload), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(world_.mirror(1).error(), CUDA_SUCCESS);
}

TEST_F(MirrorTest, CommandsThatMakeNoSenseBreakIt) {
  EXPECT_EQ(Do(Command(static_cast<MirrorCommandKind>(99))), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(world_.mirror(1).error(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(world_.mirror(1).Post(Command(MirrorCommandKind::kRelease)).error(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MirrorTest, EndsWithHome) {
  const pid_t pid = world_.mirror(1).pid();
  EXPECT_EQ(::kill(pid, 0), 0);
  // As if home had been killed while the mirror's GPU is at a kernel that never ends.
  HomeAllocation& memory = world_.Allocate(kGranule);
  memory.Write({0});
  world_.ShareHome();
  shm::MirrorCommand launch = Command(MirrorCommandKind::kLaunch);
  launch.function = 1;
  launch.num_bytes = 8;
  launch.grid[0] = launch.grid[1] = launch.grid[2] = launch.block[0] = launch.block[1] = launch.block[2] = 1;
  const uint64_t address = memory.place().address;
  ASSERT_TRUE(world_.mirror(1).Post(launch, std::as_bytes(std::span(&address, 1))).has_value());
  ASSERT_TRUE(world_.mirror(1).Post(Command(MirrorCommandKind::kRelease)).has_value());  // waits for it
  std::this_thread::sleep_for(milliseconds(50));
  world_.mirror(1).CloseForTesting();
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
}

class LyingMirrorTest : public testing::Test {
 protected:
  static Result<std::unique_ptr<Mirror>> Start(Lie lie, milliseconds longest_start = milliseconds(10'000)) {
    ::setenv(kLieVariable, std::to_string(lie).c_str(), 1);
    auto mirror = Mirror::Start({.libraries = SimLibraries(), .device = 1, .longest_start = longest_start});
    ::unsetenv(kLieVariable);
    return mirror;
  }
  static shm::MirrorCommand MapOwn() { return MirrorWorld::Command(MirrorCommandKind::kMapOwn, 0, 0, kGranule); }
};

TEST_F(LyingMirrorTest, ThatNeverGetsReady) {
  EXPECT_EQ(Start(kNeverReady, milliseconds(50)).error().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(LyingMirrorTest, ThatEndsAtOnce) { EXPECT_EQ(Start(kEndsAtOnce).error().code(), StatusCode::kUnavailable); }

TEST_F(LyingMirrorTest, ThatWritesRandomWords) {
  auto mirror = Start(kRandomWords);
  ASSERT_TRUE(mirror.has_value());
  for (int i = 0; i < 20; ++i) {  // the positions among the random words
    const auto position = (*mirror)->Post(MapOwn());
    ASSERT_TRUE(position.has_value());
    const CUresult result = (*mirror)->Wait(*position);
    EXPECT_LE(result, CUDA_ERROR_UNKNOWN);  // one that CUDA has, or its last
    EXPECT_FALSE((*mirror)->IsDone(*position + 1));
  }
}

TEST_F(LyingMirrorTest, ThatSendsWrongParcels) {
  auto mirror = Start(kWrongParcels);
  ASSERT_TRUE(mirror.has_value());
  const auto position = (*mirror)->Post(MapOwn());
  ASSERT_TRUE(position.has_value());
  EXPECT_EQ((*mirror)->Wait(*position), CUDA_SUCCESS);
  EXPECT_EQ((*mirror)->TakeParcel(*position).error().code(), StatusCode::kUnavailable);
  EXPECT_EQ((*mirror)->error(), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST_F(LyingMirrorTest, ThatHasAnErrorOfItsOwn) {
  auto mirror = Start(kUnknownError);
  ASSERT_TRUE(mirror.has_value());
  while ((*mirror)->error() == CUDA_SUCCESS) std::this_thread::yield();
  EXPECT_EQ((*mirror)->error(), CUDA_ERROR_UNKNOWN);
}

TEST_F(LyingMirrorTest, ThatTakesItsErrorBack) {
  auto mirror = Start(kTakesItsErrorBack);
  ASSERT_TRUE(mirror.has_value());
  while ((*mirror)->error() == CUDA_SUCCESS) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ((*mirror)->error(), CUDA_ERROR_ILLEGAL_ADDRESS);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace
}  // namespace tally::server
