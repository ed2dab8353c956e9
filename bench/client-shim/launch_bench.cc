// Client time of one asynchronous request while another thread drains the ring, as an executor that keeps up does.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "base/futex.h"
#include "client-shim/transport/ring_writer.h"
#include "proto/shm/operations_abi.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim {
namespace {

struct Ring {
  shm::RingState state{};
  alignas(64) std::byte bytes[shm::kRequestRingBytes] = {};
};

class Drain {
 public:
  explicit Drain(Ring* ring) : ring_(ring), thread_([this] { Run(); }) {}
  ~Drain() {
    is_stopping_ = true;
    thread_.join();
  }

 private:
  void Run() {
    uint64_t position = 0;
    while (!is_stopping_.load(std::memory_order_relaxed)) {
      const uint64_t end = ring_->state.write_position.load(std::memory_order_acquire);
      // Has the bytes in its caches afterwards.
      for (; position < end; position += 64) benchmark::DoNotOptimize(ring_->bytes[position % shm::kRequestRingBytes]);
      ring_->state.read_position.store(end);
      if (ring_->state.writer_waiting.exchange(0) != 0) {
        ring_->state.space_doorbell.fetch_add(1);
        FutexWake(ring_->state.space_doorbell, 1);
      }
      for (int i = 0; i < 64; ++i) CpuRelax();
    }
  }
  Ring* ring_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

// A launch record with `range` parameters of eight bytes: reserve, fill, take a sequence number, publish.
void BM_LaunchRecord(benchmark::State& state) {
  auto ring = std::make_unique<Ring>();
  RingWriter writer(ring->bytes, shm::kRequestRingBytes, &ring->state);
  std::atomic<uint64_t> next_sequence_number{0};
  const auto num_parameters = static_cast<uint32_t>(state.range(0));
  const uint32_t payload = static_cast<uint32_t>(sizeof(shm::Launch)) + num_parameters * 8;
  const uint32_t size = (static_cast<uint32_t>(sizeof(shm::RequestHeader)) + payload + 15) & ~15u;
  uint64_t parameter = 42;
  Drain drain(ring.get());
  uint64_t waits = 0;
  for (auto _ : state) {
    std::byte* record = nullptr;
    while ((record = writer.TryReserve(size)) == nullptr) {
      ++waits;
      writer.WaitForSpace(size, std::chrono::milliseconds(100));
    }
    auto* header = reinterpret_cast<shm::RequestHeader*>(record);
    *header = {size, static_cast<uint16_t>(shm::Op::kLaunch), 0, 0, 0, payload, 0};
    shm::Launch launch{};
    launch.parameter_bytes = num_parameters * 8;
    std::memcpy(record + sizeof(*header), &launch, sizeof(launch));
    for (uint32_t i = 0; i < num_parameters; ++i)
      std::memcpy(record + sizeof(*header) + sizeof(launch) + size_t{i} * 8, &parameter, 8);
    header->sequence_number = next_sequence_number.fetch_add(1);
    writer.Publish();
  }
  state.counters["waits_for_space"] = static_cast<double>(waits);
}
BENCHMARK(BM_LaunchRecord)->Arg(4)->Arg(16)->Arg(64)->Arg(500);

}  // namespace
}  // namespace tally::client_shim
