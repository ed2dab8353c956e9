// Writer and reader of a ring against each other's peer, played here: wrap, padding, fullness, order under load.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "client-shim/transport/ring_reader.h"
#include "client-shim/transport/ring_writer.h"

namespace tally::client_shim {
namespace {

constexpr uint32_t kRingBytes = 4096;

struct Ring {
  alignas(64) std::byte bytes[kRingBytes] = {};
  shm::RingState state{};
};

// The other side's reader: takes one request record, checks its frame, returns its payload; empty when none is there.
std::vector<uint32_t> TakeRequest(Ring* ring, uint64_t* position) {
  while (*position != ring->state.write_position.load()) {
    const std::byte* record = ring->bytes + (*position & (kRingBytes - 1));
    uint32_t size = 0;
    uint16_t op = 0;
    std::memcpy(&size, record, 4);
    std::memcpy(&op, record + 4, 2);
    EXPECT_EQ(size % shm::kRecordAlignment, 0u);
    EXPECT_LE((*position & (kRingBytes - 1)) + size, kRingBytes) << "a record wraps";
    std::vector<uint32_t> payload;
    if (op != 0) {
      payload.resize((size - sizeof(shm::RequestHeader)) / 4);
      if (!payload.empty()) {
        std::memcpy(payload.data(), record + sizeof(shm::RequestHeader), payload.size() * 4);
      }
      payload.push_back(op);
    }
    *position += size;
    ring->state.read_position.store(*position);
    if (ring->state.writer_waiting.exchange(0) != 0) {
      ring->state.space_doorbell.fetch_add(1);
      FutexWake(ring->state.space_doorbell, 1);
    }
    if (op != 0) return payload;
  }
  return {};
}

std::byte* Fill(RingWriter* writer, uint32_t size, uint16_t op, uint32_t value) {
  std::byte* record = writer->TryReserve(size);
  if (record == nullptr) return nullptr;
  shm::RequestHeader header{};
  header.size_bytes = size;
  header.op = op;
  std::memcpy(record, &header, sizeof(header));
  for (uint32_t i = sizeof(header); i < size; i += 4) std::memcpy(record + i, &value, 4);
  return record;
}

TEST(RingWriter, RefusesWhenFullAndGoesOnWhenRead) {
  auto ring = std::make_unique<Ring>();
  RingWriter writer(ring->bytes, kRingBytes, &ring->state);
  int written = 0;
  while (Fill(&writer, 256, 1, 7) != nullptr) {
    writer.Publish();
    ++written;
  }
  EXPECT_EQ(written, 16);
  EXPECT_FALSE(writer.WaitForSpace(256, std::chrono::milliseconds(5)));
  uint64_t position = 0;
  EXPECT_FALSE(TakeRequest(ring.get(), &position).empty());
  EXPECT_NE(Fill(&writer, 256, 1, 7), nullptr);
  EXPECT_EQ(Fill(&writer, 512, 1, 7), nullptr);
}

TEST(RingWriter, AbandonedReservationIsNeverSeen) {
  auto ring = std::make_unique<Ring>();
  RingWriter writer(ring->bytes, kRingBytes, &ring->state);
  ASSERT_NE(Fill(&writer, 64, 1, 1), nullptr);
  ASSERT_NE(Fill(&writer, 128, 2, 2), nullptr);
  writer.Publish();
  uint64_t position = 0;
  EXPECT_EQ(TakeRequest(ring.get(), &position).back(), 2u);
  EXPECT_TRUE(TakeRequest(ring.get(), &position).empty());
}

// Records of random sizes, written and read in a random interleaving: every one arrives whole and in order.
TEST(RingWriter, EveryInterleavingKeepsOrderAndContents) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    auto ring = std::make_unique<Ring>();
    RingWriter writer(ring->bytes, kRingBytes, &ring->state);
    std::mt19937 random(seed);
    uint64_t position = 0;
    uint32_t sent = 0, received = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random() % 2 == 0) {
        const uint32_t size = 32 + 16 * (random() % 62);  // up to a quarter of the ring
        if (Fill(&writer, size, static_cast<uint16_t>(1 + sent % 1000), sent) == nullptr) continue;
        writer.Publish();
        ++sent;
      } else if (const auto payload = TakeRequest(ring.get(), &position); !payload.empty()) {
        ASSERT_EQ(payload.back(), 1 + received % 1000);
        for (size_t i = 0; i + 1 < payload.size(); ++i) ASSERT_EQ(payload[i], received);
        ++received;
      }
    }
    while (!TakeRequest(ring.get(), &position).empty()) ++received;
    EXPECT_EQ(sent, received);
    EXPECT_GT(sent, 500u);
  }
}

TEST(RingWriter, SleepingWriterAndReaderWakeEachOther) {
  auto ring = std::make_unique<Ring>();
  constexpr uint32_t kRecords = 20000;
  std::thread peer([&] {
    uint64_t position = 0;
    for (uint32_t received = 0; received < kRecords;) {
      const auto payload = TakeRequest(ring.get(), &position);
      if (!payload.empty()) {
        ASSERT_EQ(payload.front(), received);
        ++received;
        continue;
      }
      const uint32_t doorbell = ring->state.data_doorbell.load();
      ring->state.reader_waiting.store(1);
      if (ring->state.write_position.load() != position) continue;
      FutexWait(ring->state.data_doorbell, doorbell, std::chrono::seconds(30));
    }
  });
  RingWriter writer(ring->bytes, kRingBytes, &ring->state);
  for (uint32_t i = 0; i < kRecords; ++i) {
    while (Fill(&writer, 64, 1, i) == nullptr) writer.WaitForSpace(64, std::chrono::seconds(30));
    writer.Publish();
  }
  peer.join();
}

void PutReply(Ring* ring, uint32_t size, uint16_t op, uint32_t payload_bytes) {
  const uint64_t position = ring->state.write_position.load();
  const shm::ReplyHeader header{size, op, 0, 0, payload_bytes};
  std::memcpy(ring->bytes + (position & (kRingBytes - 1)), &header, sizeof(header));
  ring->state.write_position.store(position + size);
}

TEST(RingReader, SkipsPaddingAndReportsNonsense) {
  auto ring = std::make_unique<Ring>();
  RingReader reader(ring->bytes, kRingBytes, &ring->state);
  const shm::ReplyHeader* record = nullptr;
  EXPECT_EQ(reader.Peek(&record), RingReader::Look::kEmpty);
  PutReply(ring.get(), 32, 0, 0);
  PutReply(ring.get(), 48, 5, 20);
  ASSERT_EQ(reader.Peek(&record), RingReader::Look::kRecord);
  EXPECT_EQ(record->op, 5);
  reader.Consume(record);
  EXPECT_EQ(reader.Peek(&record), RingReader::Look::kEmpty);
  EXPECT_EQ(ring->state.read_position.load(), 80u);
  PutReply(ring.get(), 48, 5, 4000);  // says more than it holds
  EXPECT_EQ(reader.Peek(&record), RingReader::Look::kBroken);
}

TEST(RingReader, SizesThatLeaveTheRingAreBroken) {
  for (const uint32_t size : {0u, 8u, 17u, 8192u, 0xfffffff0u}) {
    auto ring = std::make_unique<Ring>();
    RingReader reader(ring->bytes, kRingBytes, &ring->state);
    const shm::ReplyHeader header{size, 1, 0, 0, 0};
    std::memcpy(ring->bytes, &header, sizeof(header));
    ring->state.write_position.store(64);
    const shm::ReplyHeader* record = nullptr;
    EXPECT_EQ(reader.Peek(&record), RingReader::Look::kBroken) << size;
  }
}

TEST(RingReader, RecordsThatRunPastTheRingsEndAreBroken) {
  for (const uint16_t op : {uint16_t{0}, uint16_t{1}}) {
    auto ring = std::make_unique<Ring>();
    RingReader reader(ring->bytes, kRingBytes, &ring->state);
    const shm::ReplyHeader* record = nullptr;
    PutReply(ring.get(), kRingBytes - 32, 5, 0);
    ASSERT_EQ(reader.Peek(&record), RingReader::Look::kRecord);
    reader.Consume(record);
    PutReply(ring.get(), 48, op, 0);  // so much has been written, but only 32 bytes are left before the end
    EXPECT_EQ(reader.Peek(&record), RingReader::Look::kBroken) << op;
  }
}

}  // namespace
}  // namespace tally::client_shim
