#include "tests/server/executor/fakes/scripted_client.h"

#include <thread>

#include "base/futex.h"

namespace tally::fakes {
namespace {

// An answer of an idle server comes within this many pauses; then the core may be wanted by others.
constexpr int kSpins = 200;
// How long a wait for room lasts without looking whether the session is over.
constexpr auto kLook = std::chrono::milliseconds(10);

}  // namespace

void ScriptedChannel::Ring() {
  shm::RingState& ring = header().request;
  ring.reader_waiting.store(0);
  ring.data_doorbell.fetch_add(1);
  FutexWake(ring.data_doorbell, 1);
}

void ScriptedChannel::Publish(uint16_t op, const Payload& payload, uint16_t flags, uint32_t context,
                              std::optional<uint64_t> sequence_number) {
  shm::RingState& ring = header().request;
  const uint64_t size = (sizeof(shm::RequestHeader) + payload.bytes().size() + 15) / 16 * 16;
  const auto has_room = [&](uint64_t wanted) {
    return shm::kRequestRingBytes - (write_position_ - ring.read_position.load()) >= wanted;
  };
  const auto wait_for = [&](uint64_t wanted) {
    while (!has_room(wanted) && !client_.IsOver()) {
      const uint32_t bell = ring.space_doorbell.load();
      ring.writer_waiting.store(1);
      ++num_waits_;
      if (!has_room(wanted)) FutexWait(ring.space_doorbell, bell, kLook);
    }
  };
  const uint64_t contiguous = shm::kRequestRingBytes - write_position_ % shm::kRequestRingBytes;
  if (contiguous < size) {
    wait_for(contiguous);
    const shm::RequestHeader padding{static_cast<uint32_t>(contiguous), 0, 0, 0, 0, 0, 0};
    std::memcpy(request_ring() + write_position_ % shm::kRequestRingBytes, &padding, 16);
    write_position_ += contiguous;
    ring.write_position.store(write_position_);
  }
  wait_for(size);
  std::byte* record = request_ring() + write_position_ % shm::kRequestRingBytes;
  const shm::RequestHeader head{static_cast<uint32_t>(size),
                                op,
                                flags,
                                sequence_number ? *sequence_number : client_.header().next_sequence_number.fetch_add(1),
                                context,
                                static_cast<uint32_t>(payload.bytes().size()),
                                0};
  std::memcpy(record, &head, sizeof(head));
  if (!payload.bytes().empty()) std::memcpy(record + sizeof(head), payload.bytes().data(), payload.bytes().size());
  write_position_ += size;
  ring.write_position.store(write_position_);
  if (ring.reader_waiting.load() != 0) Ring();
}

Answer ScriptedChannel::Await() {
  shm::RingState& ring = header().reply;
  Answer answer;
  for (;;) {
    for (int spins = kSpins; ring.write_position.load() == read_position_;) {
      if (spins-- > 0) {
        CpuRelax();
        continue;
      }
      if (client_.IsOver()) return answer;
      std::this_thread::yield();
    }
    const std::byte* record = region_.data() + header().reply_offset + read_position_ % shm::kReplyRingBytes;
    shm::ReplyHeader head;
    std::memcpy(&head, record, sizeof(head));
    if (head.op != 0) {
      answer.result = head.cuda_result;
      answer.flags = head.flags;
      answer.payload.assign(record + sizeof(head), record + sizeof(head) + head.payload_bytes);
      answer.arrived = true;
    }
    read_position_ += head.size_bytes;
    ring.read_position.store(read_position_);
    if (ring.writer_waiting.load() != 0) {
      ring.writer_waiting.store(0);
      ring.space_doorbell.fetch_add(1);
      FutexWake(ring.space_doorbell, 1);
    }
    if (answer.arrived) return answer;
  }
}

Answer ScriptedChannel::CallNumber(uint16_t op, const Payload& payload, uint32_t context) {
  Publish(op, payload, shm::kWantReply, context);
  return Await();
}

std::optional<shm::SessionReply> ScriptedClient::Request(shm::SessionRequestKind kind, uint64_t value0, uint64_t value1,
                                                         uint64_t value2, UniqueFd* fd) {
  const shm::SessionRequest request{static_cast<uint32_t>(kind), 0, {value0, value1, value2}};
  if (!SendMessage(socket_.get(), std::as_bytes(std::span(&request, 1))).ok()) return std::nullopt;
  auto message = ReceiveMessage(socket_.get(), std::chrono::seconds(60));
  shm::SessionReply reply{};
  if (!message || message->bytes.size() != sizeof(reply)) return std::nullopt;
  std::memcpy(&reply, message->bytes.data(), sizeof(reply));
  if (fd != nullptr && !message->fds.empty()) *fd = std::move(message->fds[0]);
  return reply;
}

bool ScriptedClient::Attach() {
  UniqueFd fd;
  const auto reply = Request(shm::SessionRequestKind::kAttach, 0, 0, 0, &fd);
  if (!reply || reply->cuda_result != 0) return false;
  auto region = MappedRegion::Map(fd.get(), reply->value[0]);
  if (!region) return false;
  region_ = std::move(*region);
  wants_ptx_ = (reply->value[1] & shm::kWantsPtx) != 0;
  return true;
}

std::unique_ptr<ScriptedChannel> ScriptedClient::OpenChannel() {
  UniqueFd fd;
  const auto reply = Request(shm::SessionRequestKind::kOpenChannel, 0, 0, 0, &fd);
  if (!reply || reply->cuda_result != 0) return nullptr;
  auto region = MappedRegion::Map(fd.get(), reply->value[0]);
  if (!region) return nullptr;
  return std::unique_ptr<ScriptedChannel>(new ScriptedChannel(*this, std::move(*region)));
}

void ScriptedClient::WaitUntilOver() {
  while (!IsOver()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace tally::fakes
