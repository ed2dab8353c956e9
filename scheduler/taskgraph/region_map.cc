#include "scheduler/taskgraph/region_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tally::scheduler {
namespace {

struct TaskAccess {
  Box box;
  TaskId task;
  bool reads;
  bool writes;
};
struct TaskUse {
  TaskId task;
  RegionUse use;
};

// Rows and columns from and up to, by number of a border once there are borders.
struct Rectangle {
  uint64_t row_begin, row_end;
  uint64_t column_begin, column_end;
};

// Addresses as rows of `pitch` bytes, from `origin` on.
class Plane {
 public:
  Plane(uint64_t origin, uint64_t pitch) : origin_(origin), pitch_(pitch) {}

  // A box of this pitch, or a plain range: up to three rectangles. Rows that go round the edge are two.
  void Add(const Box& box, std::vector<Rectangle>& to) const {
    const uint64_t offset = box.begin() - origin_;
    const uint64_t row = offset / pitch_, column = offset % pitch_;
    if (!box.is_range()) {
      const uint64_t end = column + box.row_bytes();
      to.push_back({row, row + box.rows(), column, std::min(end, pitch_)});
      if (end > pitch_) to.push_back({row + 1, row + 1 + box.rows(), 0, end - pitch_});
      return;
    }
    const uint64_t last = offset + box.length() - 1;
    const uint64_t last_row = last / pitch_, end_column = last % pitch_ + 1;
    if (row == last_row) return to.push_back({row, row + 1, column, end_column});
    const uint64_t whole_begin = column == 0 ? row : row + 1;
    const uint64_t whole_end = end_column == pitch_ ? last_row + 1 : last_row;
    if (column != 0) to.push_back({row, row + 1, column, pitch_});
    if (whole_begin < whole_end) to.push_back({whole_begin, whole_end, 0, pitch_});
    if (end_column != pitch_) to.push_back({last_row, last_row + 1, 0, end_column});
  }
  std::optional<Box> BoxOf(const Rectangle& cell) const {
    return Box::Rows(origin_ + cell.row_begin * pitch_ + cell.column_begin, cell.column_end - cell.column_begin,
                     cell.row_end - cell.row_begin, pitch_);
  }

 private:
  const uint64_t origin_;
  const uint64_t pitch_;
};

// Sorted, each once.
class Borders {
 public:
  void Add(uint64_t at) { at_.push_back(at); }
  void Finish() {
    std::ranges::sort(at_);
    at_.erase(std::ranges::unique(at_).begin(), at_.end());
  }
  uint64_t NumberOf(uint64_t at) const {
    return static_cast<uint64_t>(std::ranges::lower_bound(at_, at) - at_.begin());
  }
  uint64_t operator[](uint64_t number) const { return at_[number]; }
  uint64_t num_pieces() const { return at_.size() - 1; }

 private:
  std::vector<uint64_t> at_;
};

// Accesses that share addresses, by address: turned into regions and uses.
class Cluster {
 public:
  Cluster(std::span<const TaskAccess> accesses, uint64_t end) : accesses_(accesses), end_(end) {}

  // False: not possible, or more cells or uses than that; nothing was added then.
  bool Divide(const RegionMap::Limits& limits, size_t num_used, std::vector<Region>& regions,
              std::vector<TaskUse>& uses) {
    const std::optional<uint64_t> pitch = CommonPitch();
    if (!pitch) return false;
    const Plane plane(accesses_.front().box.begin(), *pitch);
    std::vector<size_t> begin;  // of the rectangles of each access
    std::vector<Rectangle> rectangles;
    Borders rows, columns;
    for (const TaskAccess& access : accesses_) {
      begin.push_back(rectangles.size());
      plane.Add(access.box, rectangles);
    }
    begin.push_back(rectangles.size());
    for (const Rectangle& rectangle : rectangles) {
      rows.Add(rectangle.row_begin), rows.Add(rectangle.row_end);
      columns.Add(rectangle.column_begin), columns.Add(rectangle.column_end);
    }
    rows.Finish();
    columns.Finish();
    if (rows.num_pieces() > limits.most_cells / columns.num_pieces()) return false;
    size_t num_uses = num_used;
    for (Rectangle& rectangle : rectangles) {
      rectangle = {rows.NumberOf(rectangle.row_begin), rows.NumberOf(rectangle.row_end),
                   columns.NumberOf(rectangle.column_begin), columns.NumberOf(rectangle.column_end)};
      num_uses += (rectangle.row_end - rectangle.row_begin) * (rectangle.column_end - rectangle.column_begin);
      if (num_uses > limits.most_uses) return false;
    }
    constexpr RegionId kNoRegion = UINT32_MAX;
    std::vector<RegionId> region_of_cell(rows.num_pieces() * columns.num_pieces(), kNoRegion);
    for (size_t i = 0; i < accesses_.size(); ++i) {
      for (size_t k = begin[i]; k < begin[i + 1]; ++k) {
        const Rectangle& in = rectangles[k];
        for (uint64_t row = in.row_begin; row < in.row_end; ++row) {
          for (uint64_t column = in.column_begin; column < in.column_end; ++column) {
            RegionId& region = region_of_cell[row * columns.num_pieces() + column];
            if (region == kNoRegion) {
              region = static_cast<RegionId>(regions.size());
              regions.push_back({*plane.BoxOf({rows[row], rows[row + 1], columns[column], columns[column + 1]})});
            }
            uses.push_back({accesses_[i].task, {region, accesses_[i].reads, accesses_[i].writes}});
          }
        }
      }
    }
    return true;
  }

  void KeepHome(std::vector<Region>& regions, std::vector<TaskUse>& uses) const {
    const auto region = static_cast<RegionId>(regions.size());
    const uint64_t begin = accesses_.front().box.begin();
    regions.push_back({*Box::Range(begin, end_ - begin), true});
    for (const TaskAccess& access : accesses_) uses.push_back({access.task, {region, access.reads, access.writes}});
  }

 private:
  // Of ranges alone: one row holds them all.
  std::optional<uint64_t> CommonPitch() const {
    std::optional<uint64_t> pitch;
    for (const TaskAccess& access : accesses_) {
      if (access.box.is_range()) continue;
      if (pitch && *pitch != access.box.pitch()) return std::nullopt;
      pitch = access.box.pitch();
    }
    return pitch ? pitch : end_ - accesses_.front().box.begin();
  }

  const std::span<const TaskAccess> accesses_;
  const uint64_t end_;
};

Result<std::vector<TaskAccess>> AllAccesses(std::span<const Task> tasks) {
  std::vector<TaskAccess> all;
  for (TaskId id = 0; id < tasks.size(); ++id) {
    const Task& task = tasks[id];
    if (task.touches.extent == Extent::kAnything) continue;
    if (task.touches.accesses.size() > RegionMap::kMostAccesses - all.size()) {
      return Error(StatusCode::kResourceExhausted,
                   fmt::format("tasks that touch more than {} pieces of memory", RegionMap::kMostAccesses));
    }
    for (const Access& access : task.touches.accesses) {
      all.push_back({access.box, id, access.kind != AccessKind::kWrite || !task.overwrites, Writes(access.kind)});
    }
  }
  std::ranges::sort(all, [](const TaskAccess& a, const TaskAccess& b) {
    return std::pair(a.box.begin(), a.box.end()) < std::pair(b.box.begin(), b.box.end());
  });
  return all;
}

}  // namespace

Result<RegionMap> RegionMap::Make(std::span<const Task> tasks, const Limits& limits) {
  const Result<std::vector<TaskAccess>> all = AllAccesses(tasks);
  if (!all) return std::unexpected(all.error());
  RegionMap map;
  std::vector<TaskUse> uses;
  size_t num_divided = 0;  // uses of clusters that were divided
  for (size_t first = 0; first < all->size();) {
    uint64_t end = (*all)[first].box.end();
    size_t last = first + 1;
    for (; last < all->size() && (*all)[last].box.begin() < end; ++last) end = std::max(end, (*all)[last].box.end());
    Cluster cluster(std::span<const TaskAccess>(*all).subspan(first, last - first), end);
    const size_t num_before = uses.size();
    if (cluster.Divide(limits, num_divided, map.regions_, uses)) {
      num_divided += uses.size() - num_before;
    } else {
      cluster.KeepHome(map.regions_, uses);
    }
    first = last;
  }
  std::ranges::sort(uses, {}, [](const TaskUse& use) { return std::pair(use.task, use.use.region); });
  map.begin_.assign(tasks.size() + 1, 0);
  map.uses_.reserve(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    const auto& [task, use] = uses[i];
    if (i > 0 && uses[i - 1].task == task && uses[i - 1].use.region == use.region) {
      map.uses_.back().reads |= use.reads;
      map.uses_.back().writes |= use.writes;
    } else {
      map.uses_.push_back(use);
      ++map.begin_[task + 1];
    }
  }
  for (size_t i = 0; i < tasks.size(); ++i) map.begin_[i + 1] += map.begin_[i];
  return map;
}

}  // namespace tally::scheduler
