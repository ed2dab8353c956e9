#include "sim-driver/engine/delivery.h"

#include <cstring>

#include "sim-driver/engine/mbarrier.h"
#include "sim-driver/engine/memory_view.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kMostUnderWay = 256;
constexpr uint64_t kPlaceMask = (1u << kSharedRankShift) - 1;

void Arrive(std::byte* to, std::span<const std::byte> bytes, std::byte* barrier) {
  std::memcpy(to, bytes.data(), bytes.size());
  CompleteTransactions(barrier, static_cast<uint32_t>(bytes.size()));
}

bool DeliverTo(Warp& w, const Instruction& i, uint32_t lane, uint64_t to, uint64_t barrier, uint32_t alignment,
               std::span<const std::byte> bytes) {
  std::byte* there =
      ResolveAddress(w, i, lane, Space::kSharedCluster, to, static_cast<uint32_t>(bytes.size()), alignment, true);
  if (there == nullptr) return false;
  std::byte* its_barrier = ResolveAddress(w, i, lane, Space::kSharedCluster, barrier, 8, 8, true);
  if (its_barrier == nullptr) return false;
  Cluster& cluster = *w.block->cluster;
  if (cluster.schedule.IsNatural() || cluster.deliveries.size() >= kMostUnderWay) {
    Arrive(there, bytes, its_barrier);
  } else {
    cluster.deliveries.push_back({there, std::vector<std::byte>(bytes.begin(), bytes.end()), its_barrier});
  }
  return true;
}

}  // namespace

bool Deliver(Warp& w, const Instruction& i, uint32_t lane, const Destination& destination,
             std::span<const std::byte> bytes) {
  const auto& [to, barrier, alignment, is_multicast, blocks] = destination;
  if (!is_multicast) return DeliverTo(w, i, lane, to, barrier, alignment, bytes);
  for (uint32_t rest = blocks; rest != 0; rest &= rest - 1) {
    const uint64_t block = (uint64_t{static_cast<uint32_t>(std::countr_zero(rest))} + 1) << kSharedRankShift;
    if (!DeliverTo(w, i, lane, block | (to & kPlaceMask), block | (barrier & kPlaceMask), alignment, bytes))
      return false;
  }
  return true;
}

bool DeliverOne(Cluster& cluster) {
  if (cluster.deliveries.empty()) return false;
  const auto chosen =
      cluster.deliveries.begin() + static_cast<ptrdiff_t>(cluster.schedule.Pick(cluster.deliveries.size()));
  const Delivery delivery = std::move(*chosen);
  cluster.deliveries.erase(chosen);
  Arrive(delivery.to, delivery.bytes, delivery.barrier);
  return true;
}

}  // namespace tally::sim_driver
