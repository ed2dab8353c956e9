#include "server/executor/session/virtual_memory.h"

#include <iterator>
#include <utility>

#include "proto/shm/handles_abi.h"

namespace tally::server {

bool VirtualMemory::MayReserve(uint64_t size_bytes) const {
  return reservations_.size() < kMaxReservations && size_bytes <= kMaxReservedBytes - reserved_bytes_;
}

void VirtualMemory::AddReservation(uint64_t address, uint64_t size_bytes) {
  reservations_[address] = size_bytes;
  reserved_bytes_ += size_bytes;
}

bool VirtualMemory::IsReserved(uint64_t address, uint64_t size_bytes) const {
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin() || size_bytes == 0) return false;
  const auto& [base, bytes] = *std::prev(after);
  return address - base < bytes && size_bytes <= bytes - (address - base);
}

bool VirtualMemory::IsFreeReservation(uint64_t address, uint64_t size_bytes) const {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != size_bytes) return false;
  const auto mapping = mapped_.lower_bound(address);
  return mapping == mapped_.end() || mapping->first >= address + size_bytes;
}

void VirtualMemory::RemoveReservation(uint64_t address) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end()) return;
  reserved_bytes_ -= found->second;
  reservations_.erase(found);
}

VirtualMemory::Held& VirtualMemory::Hold(std::shared_ptr<PhysicalMemory> memory) {
  const auto [place, is_new] = held_.try_emplace(memory.get());
  if (is_new) {
    memory_.CountPhysical(memory->size_bytes, true);
    place->second.memory = std::move(memory);
  }
  return place->second;
}

VirtualMemory::Held* VirtualMemory::Find(const PhysicalMemory* memory) {
  const auto found = held_.find(memory);
  return found != held_.end() ? &found->second : nullptr;
}

void VirtualMemory::Settle(const PhysicalMemory* memory) {
  const auto found = held_.find(memory);
  if (found == held_.end() || found->second.num_references != 0 || found->second.num_mappings != 0) return;
  memory_.CountPhysical(memory->size_bytes, false);
  held_.erase(found);
}

bool VirtualMemory::AddMapping(uint64_t address, uint64_t size_bytes, Held& held) {
  MemoryRange range{address, size_bytes, MemoryKind::kMapped, shm::kNoContext};
  if (!memory_.Add(range)) return false;
  mapped_[address] = held.memory;
  ++held.num_mappings;
  return true;
}

std::shared_ptr<PhysicalMemory> VirtualMemory::RemoveMapping(uint64_t address) {
  const auto found = mapped_.find(address);
  if (found == mapped_.end()) return nullptr;
  std::shared_ptr<PhysicalMemory> memory = std::move(found->second);
  mapped_.erase(found);
  memory_.Take(address, MemoryKind::kMapped, MemoryKind::kMapped);
  --held_.at(memory.get()).num_mappings;
  Settle(memory.get());
  return memory;
}

std::shared_ptr<PhysicalMemory> VirtualMemory::MappedAt(uint64_t address) const {
  const auto after = mapped_.upper_bound(address);
  if (after == mapped_.begin()) return nullptr;
  const auto range = memory_.Mapping(address);
  return range ? std::prev(after)->second : nullptr;
}

void VirtualMemory::DestroyAll(const DriverTable& driver) {
  for (const MemoryRange& range : memory_.Ranges()) {
    if (range.kind != MemoryKind::kMapped) continue;
    driver.cuMemUnmap(range.address, range.size_bytes);
    RemoveMapping(range.address);
  }
  for (const auto& [memory, held] : held_) memory_.CountPhysical(memory->size_bytes, false);
  held_.clear();
  for (const auto& [address, bytes] : reservations_) driver.cuMemAddressFree(address, bytes);
  reservations_.clear();
  reserved_bytes_ = 0;
}

}  // namespace tally::server
