#include "scheduler/taskgraph/region_directory.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "base/check.h"

namespace tally::scheduler {
namespace {

constexpr uint16_t BitOf(DeviceId device) { return static_cast<uint16_t>(1 << device); }
constexpr uint16_t kAbroad = static_cast<uint16_t>(~BitOf(kHome));

}  // namespace

Result<RegionDirectory> RegionDirectory::Make(std::span<const uint64_t> region_bytes,
                                              std::span<const uint64_t> most_bytes) {
  CHECK(!most_bytes.empty() && most_bytes.size() <= kMostDevices);
  if (region_bytes.size() > kMostCopies / most_bytes.size()) {
    return Error(StatusCode::kResourceExhausted, fmt::format("{} regions on {} GPUs are more than {} copies",
                                                             region_bytes.size(), most_bytes.size(), kMostCopies));
  }
  RegionDirectory directory;
  directory.regions_.resize(region_bytes.size());
  for (size_t i = 0; i < region_bytes.size(); ++i) directory.regions_[i].bytes = region_bytes[i];
  directory.room_.resize(most_bytes.size());
  for (size_t i = 0; i < most_bytes.size(); ++i) directory.room_[i].most = most_bytes[i];
  directory.links_.resize(region_bytes.size() * most_bytes.size());
  directory.abroad_.place.assign(region_bytes.size(), kNone);
  directory.away_.place.assign(region_bytes.size(), kNone);
  return directory;
}

bool RegionDirectory::Fits(std::span<const RegionUse> uses, DeviceId device) const {
  if (device == kHome) return true;
  uint64_t left = room_[device].most;
  for (const RegionUse& use : uses) {
    const uint64_t bytes = regions_[use.region].bytes;
    if (bytes > left) return false;
    left -= bytes;
  }
  return true;
}

void RegionDirectory::Use(std::span<const RegionUse> uses, DeviceId device, std::vector<DirectoryAction>& actions) {
  // What is there already is the last to make room.
  uint64_t missing = 0;
  for (const RegionUse& use : uses) {
    if (device == kHome) break;
    if ((regions_[use.region].resident & BitOf(device)) == 0) {
      missing += regions_[use.region].bytes;
    } else {
      Unlink(use.region, device);
      LinkLast(use.region, device);
    }
  }
  if (missing > 0) MakeRoom(missing, device, actions);
  for (const RegionUse& use : uses) {
    RegionState& region = regions_[use.region];
    if ((region.resident & BitOf(device)) == 0) {
      region.resident |= BitOf(device);
      room_[device].used += region.bytes;
      LinkLast(use.region, device);
    }
    if (use.reads && !IsValid(use.region, device)) Move(use.region, SourceOf(use.region), device, actions);
  }
  for (const RegionUse& use : uses) {
    if (!use.writes) continue;
    RegionState& region = regions_[use.region];
    ++region.version;
    region.owner = device;
    SetValid(use.region, BitOf(device));
  }
}

void RegionDirectory::BringHome(bool writes, std::vector<DirectoryAction>& actions) {
  while (!away_.members.empty()) {
    SendHome(away_.members.back(), actions);
  }
  while (writes && !abroad_.members.empty()) {
    RegionState& region = regions_[abroad_.members.back()];
    ++region.version;
    region.owner = kHome;
    SetValid(abroad_.members.back(), BitOf(kHome));
  }
}

void RegionDirectory::SendHome(RegionId region, std::vector<DirectoryAction>& actions) {
  if (!IsValid(region, kHome)) Move(region, SourceOf(region), kHome, actions);
}

CopyState RegionDirectory::state(RegionId region, DeviceId device) const {
  if (!IsValid(region, device)) return CopyState::kInvalid;
  return device != kHome && !IsValid(region, kHome) && regions_[region].valid == BitOf(device) ? CopyState::kModified
                                                                                               : CopyState::kShared;
}

void RegionDirectory::MakeRoom(uint64_t bytes, DeviceId device, std::vector<DirectoryAction>& actions) {
  Room& room = room_[device];
  while (room.most - room.used < bytes) {
    CHECK(room.first != kNone);
    const RegionId dropped = room.first;
    RegionState& region = regions_[dropped];
    if (region.valid == BitOf(device)) Move(dropped, device, kHome, actions);
    SetValid(dropped, static_cast<uint16_t>(region.valid & ~BitOf(device)));
    Unlink(dropped, device);
    region.resident &= static_cast<uint16_t>(~BitOf(device));
    room.used -= region.bytes;
    actions.push_back({DirectoryAction::Kind::kDrop, dropped, device, device});
  }
}

void RegionDirectory::Move(RegionId region, DeviceId from, DeviceId to, std::vector<DirectoryAction>& actions) {
  actions.push_back({DirectoryAction::Kind::kMove, region, from, to});
  moved_bytes_ += regions_[region].bytes;
  room_[from].sent += regions_[region].bytes;
  SetValid(region, regions_[region].valid | BitOf(to));
}

// The one that has sent least: home is not to be the hub of all.
DeviceId RegionDirectory::SourceOf(RegionId region) const {
  const uint16_t valid = regions_[region].valid;
  auto best = static_cast<DeviceId>(std::countr_zero(valid));
  for (DeviceId device = best; device < num_devices(); ++device) {
    if ((valid & BitOf(device)) != 0 && room_[device].sent < room_[best].sent) best = device;
  }
  return best;
}

void RegionDirectory::SetValid(RegionId region, uint16_t valid) {
  RegionState& state = regions_[region];
  auto lost = static_cast<uint16_t>(state.valid & ~valid & kAbroad & state.resident);
  state.valid = valid;
  for (; lost != 0; lost &= static_cast<uint16_t>(lost - 1)) {
    const auto device = static_cast<DeviceId>(std::countr_zero(lost));
    Unlink(region, device);
    LinkFirst(region, device);
  }
  if ((valid & kAbroad) != 0) abroad_.Insert(region);
  if ((valid & kAbroad) == 0) abroad_.Erase(region);
  if ((valid & BitOf(kHome)) == 0) away_.Insert(region);
  if ((valid & BitOf(kHome)) != 0) away_.Erase(region);
}

void RegionDirectory::Unlink(RegionId region, DeviceId device) {
  if (device == kHome) return;
  Room& room = room_[device];
  const Links at = std::exchange(links(region, device), {});
  (at.before == kNone ? room.first : links(at.before, device).behind) = at.behind;
  (at.behind == kNone ? room.last : links(at.behind, device).before) = at.before;
}

void RegionDirectory::LinkFirst(RegionId region, DeviceId device) {
  if (device == kHome) return;
  Room& room = room_[device];
  links(region, device) = {kNone, room.first};
  (room.first == kNone ? room.last : links(room.first, device).before) = region;
  room.first = region;
}

void RegionDirectory::LinkLast(RegionId region, DeviceId device) {
  if (device == kHome) return;
  Room& room = room_[device];
  links(region, device) = {room.last, kNone};
  (room.last == kNone ? room.first : links(room.last, device).behind) = region;
  room.last = region;
}

void RegionDirectory::RegionSet::Insert(RegionId region) {
  if (place[region] != kNone) return;
  place[region] = static_cast<uint32_t>(members.size());
  members.push_back(region);
}

void RegionDirectory::RegionSet::Erase(RegionId region) {
  if (place[region] == kNone) return;
  place[members.back()] = place[region];
  members[place[region]] = members.back();
  members.pop_back();
  place[region] = kNone;
}

}  // namespace tally::scheduler
