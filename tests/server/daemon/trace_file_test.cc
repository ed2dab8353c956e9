// What an executor may write, all of which tallyd has to survive.
#include "server/daemon/trace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/mapped_region.h"

namespace tally::server {
namespace {

class TraceFileTest : public ::testing::Test {
 protected:
  TraceFileTest() : file_(std::move(*CreateSealedMemfd("trace", control::kTraceFileBytes, 4096))) {
    header_.magic = control::kTraceMagic;
    header_.began_ns = 1;
    header_.ended_ns = 2;
    header_.num_events = 1;
    header_.num_names = 1;
    event_.kind = static_cast<uint16_t>(control::TraceKind::kRun);
  }
  Result<TraceContents> Read() {
    char name[control::kTraceNameBytes];
    std::memset(name, 'n', sizeof(name));  // not terminated
    EXPECT_EQ(::pwrite(file_.get(), &header_, sizeof(header_), 0), static_cast<ssize_t>(sizeof(header_)));
    EXPECT_EQ(::pwrite(file_.get(), &event_, sizeof(event_), sizeof(header_)), static_cast<ssize_t>(sizeof(event_)));
    EXPECT_EQ(::pwrite(file_.get(), name, sizeof(name), sizeof(header_) + sizeof(event_)),
              static_cast<ssize_t>(sizeof(name)));
    return ReadTraceFile(file_.get());
  }

  UniqueFd file_;
  control::TraceFileHeader header_{};
  control::TraceEvent event_{};
};

TEST_F(TraceFileTest, WhatWasWrittenIsRead) {
  const auto contents = Read();
  ASSERT_TRUE(contents);
  ASSERT_EQ(contents->events.size(), 1u);
  EXPECT_EQ(contents->names, std::vector<std::string>{std::string(control::kTraceNameBytes - 1, 'n')});
}

TEST_F(TraceFileTest, NothingWasWritten) {
  const auto contents = ReadTraceFile(file_.get());
  ASSERT_FALSE(contents);
  EXPECT_EQ(contents.error().code(), StatusCode::kUnavailable);
}

TEST_F(TraceFileTest, NonsenseIsRefused) {
  const auto is_refused = [&] { return !Read() && Read().error().code() == StatusCode::kInvalidArgument; };
  event_.name = 1;
  EXPECT_TRUE(is_refused()) << "a name that there is not";
  event_.name = 0;
  for (const uint16_t kind : {uint16_t{0}, uint16_t{6}, uint16_t{0xFFFF}}) {
    event_.kind = kind;
    EXPECT_TRUE(is_refused());
  }
  event_.kind = 1;
  for (const uint32_t count : {static_cast<uint32_t>(control::kMostTraceEvents + 1), UINT32_MAX}) {
    header_.num_events = count;
    EXPECT_TRUE(is_refused());
  }
  header_.num_events = 1;
  header_.num_names = UINT32_MAX;
  EXPECT_TRUE(is_refused());
  header_.num_names = 1;
  header_.ended_ns = 0;
  EXPECT_TRUE(is_refused());
  header_.ended_ns = 2;
  header_.magic += 1;
  EXPECT_TRUE(is_refused());
}

TEST_F(TraceFileTest, RandomBytesAreRead) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    header_.num_events = random() % 3;
    header_.num_names = random() % 3;
    auto* bytes = reinterpret_cast<unsigned char*>(random() % 2 == 0 ? static_cast<void*>(&event_) : &header_);
    bytes[8 + random() % 40] = static_cast<unsigned char>(random());
    (void)Read();
  }
}

TEST_F(TraceFileTest, TheLargestFits) {
  header_.num_events = control::kMostTraceEvents;
  header_.num_names = control::kMostTraceNames;
  ASSERT_EQ(::pwrite(file_.get(), &header_, sizeof(header_), 0), static_cast<ssize_t>(sizeof(header_)));
  EXPECT_EQ(ReadTraceFile(file_.get()).error().message(), "its recording makes no sense");  // of kind 0, all of them
  EXPECT_LT(::pwrite(file_.get(), "", 1, control::kTraceFileBytes), 0) << "it cannot grow";
}

}  // namespace
}  // namespace tally::server
