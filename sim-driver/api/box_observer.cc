#include "sim-driver/api/box_observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "sim-driver/api/error.h"

namespace tally::sim_driver {
namespace {

struct Place {
  uint64_t address = 0;  // of the first such access
  uint32_t bytes = 0;
  uint64_t num_accesses = 0;
};

struct Outside {
  std::mutex mutex;
  std::map<std::pair<std::string, bool>, Place> places;  // by place and whether it writes
  uint64_t num_unnamed = 0;
};
Outside& GetOutside() {
  static auto& outside = *new Outside();
  return outside;
}

uint64_t End(const TallyBox& box) {
  const uint64_t pitch = box.rows == 1 ? 0 : box.pitch;
  uint64_t rows = 0, end = 0;
  Require(!__builtin_mul_overflow(pitch, box.rows - 1, &rows) && !__builtin_add_overflow(box.address, rows, &end) &&
              !__builtin_add_overflow(end, box.row_bytes, &end),
          CUDA_ERROR_INVALID_VALUE);
  return end;
}

bool Contains(const TallyBox& box, uint64_t address, uint64_t num_bytes) {
  if (address < box.address || num_bytes > box.row_bytes) return false;
  const uint64_t inside = address - box.address;
  if (box.rows == 1 || box.pitch == 0) return inside <= box.row_bytes - num_bytes;
  // Rows that overlap: an earlier one may hold what the last one before the address does not.
  const uint64_t row = std::min(inside / box.pitch, box.rows - 1);
  return inside - row * box.pitch <= box.row_bytes - num_bytes;
}

}  // namespace

BoxObserver::BoxObserver(std::vector<TallyBox> boxes) : boxes_(std::move(boxes)) {
  std::erase_if(boxes_, [](const TallyBox& box) { return box.rows == 0 || box.row_bytes == 0; });
  std::ranges::sort(boxes_, {}, &TallyBox::address);
  uint64_t furthest = 0;
  for (const TallyBox& box : boxes_) {
    furthest = std::max(furthest, End(box));
    furthest_end_.push_back(furthest);
  }
}

bool BoxObserver::Allows(uint64_t address, uint64_t num_bytes, bool is_write) const {
  auto next = std::ranges::upper_bound(boxes_, address, {}, &TallyBox::address);
  while (next != boxes_.begin()) {
    --next;
    if (furthest_end_[static_cast<size_t>(next - boxes_.begin())] < address + num_bytes) return false;
    if ((is_write ? next->may_write : next->may_read) != 0 && Contains(*next, address, num_bytes)) return true;
  }
  return false;
}

void BoxObserver::OnAccess(const ObservedAccess& access) const {
  if (Allows(access.address, access.bytes, access.is_write)) return;
  std::string place = DescribePlace(access);
  Outside& outside = GetOutside();
  const std::lock_guard lock(outside.mutex);
  const std::pair key(std::move(place), access.is_write);
  const auto known = outside.places.find(key);
  if (known != outside.places.end()) {
    ++known->second.num_accesses;
  } else if (outside.places.size() < kTallyMaxPlaces) {
    outside.places.emplace(key, Place{access.address, access.bytes, 1});
  } else {
    ++outside.num_unnamed;
  }
}

std::shared_ptr<const BoxObserver>& DeclaredBoxes() {
  thread_local std::shared_ptr<const BoxObserver> boxes;
  return boxes;
}

std::string TakeOutside() {
  Outside& outside = GetOutside();
  const std::lock_guard lock(outside.mutex);
  std::string text;
  for (const auto& [key, place] : outside.places) {
    text += fmt::format("{}: {} of {} bytes at {:#x} is outside the declared boxes ({} times)\n", key.first,
                        key.second ? "write" : "read", place.bytes, place.address, place.num_accesses);
  }
  if (outside.num_unnamed != 0) text += fmt::format("and {} accesses at other places\n", outside.num_unnamed);
  outside.places.clear();
  outside.num_unnamed = 0;
  return text;
}

}  // namespace tally::sim_driver
