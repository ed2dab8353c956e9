#include "server/executor/channel/request_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

namespace tally::server {
namespace {

using Outcome = RequestReader::Outcome;

class RequestReaderTest : public ::testing::Test {
 protected:
  void Put(uint64_t position, uint32_t size_bytes, uint16_t op, uint32_t payload_bytes = 0) {
    shm::RequestHeader head{};
    head.size_bytes = size_bytes;
    head.op = op;
    head.payload_bytes = payload_bytes;
    const uint64_t at = position % shm::kRequestRingBytes;
    std::memcpy(region_->request_ring() + at, &head, std::min<size_t>(sizeof(head), shm::kRequestRingBytes - at));
  }
  void Publish(uint64_t position) { region_->header().request.write_position.store(position); }

  Result<ChannelRegion> region_ = ChannelRegion::Create(3);
};

TEST_F(RequestReaderTest, ReadsRecordsAndFreesTheirPlace) {
  RequestReader reader(*region_);
  Request request{};
  EXPECT_EQ(reader.Read(&request), Outcome::kEmpty);
  Put(0, 48, 7, 16);
  Put(48, 32, 8);
  Publish(80);
  ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  EXPECT_EQ(request.header.op, 7);
  EXPECT_EQ(request.payload.size(), 16u);
  EXPECT_EQ(region_->header().request.read_position.load(), 48u);
  ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  EXPECT_EQ(request.header.op, 8);
  EXPECT_EQ(reader.Read(&request), Outcome::kEmpty);
}

TEST_F(RequestReaderTest, WrapsAtPadding) {
  RequestReader reader(*region_);
  Request request{};
  uint64_t position = 0;
  for (int i = 0; i < 3; ++i) {  // fills three quarters and goes round
    Put(position, shm::kMaxRequestBytes, 5);
    position += shm::kMaxRequestBytes;
  }
  Put(position, 64, 6);
  position += 64;
  Publish(position);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  const uint64_t rest = shm::kRequestRingBytes - position;
  Put(position, static_cast<uint32_t>(rest), 0);
  position += rest;
  Put(position, 32, 9);
  Publish(position + 32);
  ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  EXPECT_EQ(request.header.op, 9);
}

TEST_F(RequestReaderTest, RefusesNonsense) {
  const auto outcome = [&](uint64_t write_position, uint32_t size, uint16_t op, uint32_t payload = 0) {
    auto fresh = ChannelRegion::Create(0);
    region_ = std::move(fresh);
    RequestReader reader(*region_);
    Put(0, size, op, payload);
    Publish(write_position);
    Request request{};
    return reader.Read(&request);
  };
  EXPECT_EQ(outcome(32, 32, 1), Outcome::kRequest);
  EXPECT_EQ(outcome(8, 32, 1), Outcome::kMalformed);                            // not a multiple of the alignment
  EXPECT_EQ(outcome(16, 32, 1), Outcome::kMalformed);                           // longer than what was written
  EXPECT_EQ(outcome(UINT64_MAX - 15, 32, 1), Outcome::kMalformed);              // ahead by more than the ring
  EXPECT_EQ(outcome(shm::kRequestRingBytes + 16, 32, 1), Outcome::kMalformed);  // likewise
  EXPECT_EQ(outcome(32, 16, 1), Outcome::kMalformed);                           // shorter than its header
  EXPECT_EQ(outcome(32, 0, 0), Outcome::kMalformed);
  EXPECT_EQ(outcome(64, 40, 1), Outcome::kMalformed);
  EXPECT_EQ(outcome(shm::kRequestRingBytes, shm::kMaxRequestBytes + 16, 1), Outcome::kMalformed);
  EXPECT_EQ(outcome(64, 64, 1, 33), Outcome::kMalformed);  // payload longer than its record
}

// Behind the ring lies the reply ring: what is written in all may be enough, what is left before the end is not.
TEST_F(RequestReaderTest, RefusesARecordThatRunsPastTheRingsEnd) {
  for (const uint32_t left : {16u, 32u, 48u}) {
    for (const uint16_t op : {uint16_t{0}, uint16_t{9}}) {
      region_ = ChannelRegion::Create(0);
      RequestReader reader(*region_);
      uint64_t position = 0;
      for (int i = 0; i < 4; ++i) {
        const uint32_t size = shm::kMaxRequestBytes - (i == 3 ? left : 0);
        Put(position, size, 5);
        position += size;
      }
      Publish(position);
      Request request{};
      for (int i = 0; i < 4; ++i) ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
      Put(position, 64, op);
      Publish(position + 64);
      EXPECT_EQ(reader.Read(&request), Outcome::kMalformed) << left << " bytes are left";
      EXPECT_STREQ(reader.reason(), "request ring: impossible record size");
    }
  }
}

TEST_F(RequestReaderTest, WakesAWriterThatWaitsForRoomWhenHalfIsFree) {
  RequestReader reader(*region_);
  shm::RingState& state = region_->header().request;
  constexpr uint64_t kRecord = 64 << 10;
  for (uint64_t at = 0; at < shm::kRequestRingBytes; at += kRecord) Put(at, kRecord, 5);
  Publish(shm::kRequestRingBytes);
  state.writer_waiting = 1;
  const uint32_t bell = state.space_doorbell.load();
  Request request{};
  for (uint64_t left = shm::kRequestRingBytes; left > shm::kRequestRingBytes / 2; left -= kRecord) {
    EXPECT_EQ(state.space_doorbell.load(), bell) << left << " bytes are not read yet";
    ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  }
  // Half is more than any record needs, padding included.
  static_assert(2 * shm::kMaxRequestBytes <= shm::kRequestRingBytes / 2);
  EXPECT_EQ(state.space_doorbell.load(), bell + 1);
  EXPECT_EQ(state.writer_waiting.load(), 0u);
  // It fills the ring again and waits again, before what it wrote first has all been read.
  Publish(shm::kRequestRingBytes + shm::kRequestRingBytes / 2);
  state.writer_waiting = 1;
  for (uint64_t left = shm::kRequestRingBytes; left > shm::kRequestRingBytes / 2; left -= kRecord) {
    EXPECT_EQ(state.space_doorbell.load(), bell + 1) << left << " bytes are not read yet";
    ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  }
  EXPECT_EQ(state.space_doorbell.load(), bell + 2);
}

TEST_F(RequestReaderTest, WaitEndsForDataAndForStop) {
  RequestReader reader(*region_);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    Put(0, 32, 4);
    Publish(32);
    while (region_->header().request.reader_waiting.load() != 0) reader.Wake();
  });
  Request request{};
  while (reader.Read(&request) == Outcome::kEmpty) reader.Wait(stop);
  writer.join();
  EXPECT_EQ(request.header.op, 4);
  std::thread stopper([&] {
    stop = true;
    reader.Wake();
  });
  while (!stop) reader.Wait(stop);
  stopper.join();
  SUCCEED() << "neither wait hung";
}

// A doorbell that nobody rings ends no sleep; one that dozes looks by itself.
TEST_F(RequestReaderTest, DozesInShortSleeps) {
  RequestReader reader(*region_);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (region_->header().request.reader_waiting.load() == 0) std::this_thread::yield();
    Put(0, 32, 4);
    Publish(32);
  });
  reader.Wait(stop, {.longest_spin = std::chrono::nanoseconds(0), .longest_doze = std::chrono::minutes(10)});
  writer.join();
  Request request{};
  ASSERT_EQ(reader.Read(&request), Outcome::kRequest);
  EXPECT_EQ(request.header.op, 4);
}

// Called until it says that it has seen enough; the wait goes on. Spinning or asleep.
TEST_F(RequestReaderTest, WhoeverMindsSilenceIsCalledWhileItLasts) {
  RequestReader reader(*region_);
  std::atomic<bool> stop{false};
  std::atomic<int> num_calls{0};
  std::chrono::nanoseconds last{0};
  const RequestReader::OnSilence on_silence = [&](std::chrono::nanoseconds silent_for) {
    EXPECT_GE(silent_for, RequestReader::kFirstLook);
    EXPECT_GT(silent_for, last);
    last = silent_for;
    return ++num_calls < 3 ? std::chrono::nanoseconds(1000) : std::chrono::nanoseconds(0);
  };
  std::thread writer([&] {
    while (num_calls < 3) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Put(0, 32, 4);
    Publish(32);
    reader.Wake();
  });
  Request request{};
  while (reader.Read(&request) == Outcome::kEmpty) reader.Wait(stop, RequestReader::kPatience, on_silence);
  writer.join();
  EXPECT_EQ(num_calls, 3);
  EXPECT_EQ(request.header.op, 4);
}

}  // namespace
}  // namespace tally::server
