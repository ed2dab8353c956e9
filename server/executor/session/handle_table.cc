#include "server/executor/session/handle_table.h"

#include <algorithm>

namespace tally::server {

HandleTable::HandleTable(shm::HandleKind kind, uint32_t max_handles, bool by_value)
    : kind_(kind),
      max_handles_(std::min<uint32_t>(max_handles, static_cast<uint32_t>(shm::kMaxHandleIndex))),
      by_value_(by_value) {}

uint64_t HandleTable::Add(void* value, uint32_t context) {
  if (by_value_) {
    if (const auto known = handles_.find(value); known != handles_.end()) return known->second;
  }
  if (size_ >= max_handles_) return 0;
  Side& side = sides_[1];
  uint32_t index = 0;
  if (!side.free.empty()) {
    index = side.free.back();
    side.free.pop_back();
  } else {
    index = static_cast<uint32_t>(side.entries.size());
    side.entries.emplace_back();
    side.generations.push_back(1);
  }
  const uint64_t handle = shm::MakeHandle(kind_, side.generations[index]++, true, index);
  side.entries[index] = Entry{handle, value, context};
  ++size_;
  if (by_value_) handles_[value] = handle;
  return handle;
}

bool HandleTable::AddNamed(uint64_t handle, void* value, uint32_t context) {
  const uint64_t index = shm::HandleIndexOf(handle);
  if (shm::HandleKindOf(handle) != kind_ || shm::IsServerNamed(handle) || index >= max_handles_ ||
      size_ >= max_handles_ || handle != shm::MakeHandle(kind_, static_cast<uint8_t>(handle >> 32), false, index)) {
    return false;
  }
  Side& side = sides_[0];
  if (index >= side.entries.size()) side.entries.resize(index + 1);
  if (side.entries[index].handle != 0) return false;
  side.entries[index] = Entry{handle, value, context};
  ++size_;
  if (by_value_) handles_[value] = handle;
  return true;
}

const HandleTable::Entry* HandleTable::FindEntry(uint64_t handle) const {
  const Side& side = sides_[shm::IsServerNamed(handle) ? 1 : 0];
  const uint64_t index = shm::HandleIndexOf(handle);
  if (handle == 0 || index >= side.entries.size() || side.entries[index].handle != handle) return nullptr;
  return &side.entries[index];
}

uint64_t HandleTable::FindHandle(void* value) const {
  const auto known = handles_.find(value);
  return known != handles_.end() ? known->second : 0;
}

void* HandleTable::Remove(uint64_t handle) {
  const Entry* found = FindEntry(handle);
  if (found == nullptr) return nullptr;
  void* value = found->value;
  const bool by_server = shm::IsServerNamed(handle);
  Side& side = sides_[by_server ? 1 : 0];
  const auto index = static_cast<uint32_t>(shm::HandleIndexOf(handle));
  side.entries[index] = Entry{};
  if (by_server) side.free.push_back(index);
  --size_;
  if (by_value_) handles_.erase(value);
  return value;
}

std::vector<HandleTable::Entry> HandleTable::Entries() const {
  std::vector<Entry> result;
  for (const Side& side : sides_) {
    std::copy_if(side.entries.begin(), side.entries.end(), std::back_inserter(result),
                 [](const Entry& entry) { return entry.handle != 0; });
  }
  return result;
}

}  // namespace tally::server
