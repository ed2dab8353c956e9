// RegionDirectory: which GPU has a copy of which region, and what must be moved before a task may run somewhere.
//
//            reads here              writes here               somebody else reads
//      invalid ------> shared         any ------> modified      modified ------> shared
//            fetched from a           all other copies          fetched from here
//            GPU that has it          become invalid
//
// Home is the program's own GPU: its memory is where all regions are before and after the graph, and it always has
// room. The copies of the other GPUs may take so many bytes together; what was used longest ago makes room, and goes
// home first if nobody else has it. Copies that are no longer valid make room before all others. They keep their room
// until then, so whoever carries this out knows from the actions alone which memory is used again, and behind whom.
//
// What is asked is carried out in that order, or in any other that keeps, copy by copy, the order of reads and writes.
//
// A step per use and per action, whatever the number of regions; `kMostCopies` bounds the memory, 16 bytes each. Not
// thread-safe. The states are those of cache coherence (MSI), as StarPU's; MUSTARD fetches each input anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "scheduler/taskgraph/region_map.h"

namespace tally::scheduler {

using DeviceId = uint8_t;  // by place among the GPUs of a graph
constexpr DeviceId kHome = 0;
constexpr size_t kMostDevices = 16;

enum class CopyState : uint8_t { kInvalid, kShared, kModified };

struct DirectoryAction {
  enum class Kind : uint8_t {
    kMove,  // the contents of `from`'s copy to `device`
    kDrop,  // `device` gives up the room of its copy
  };
  Kind kind = Kind::kMove;
  RegionId region = 0;
  DeviceId from = kHome;
  DeviceId device = kHome;
  bool operator==(const DirectoryAction&) const = default;
};

class RegionDirectory {
 public:
  static constexpr size_t kMostCopies = 1 << 20;

  // `most_bytes`: of copies, by GPU; the first, home's, does not count. kResourceExhausted: more copies than that.
  static Result<RegionDirectory> Make(std::span<const uint64_t> region_bytes, std::span<const uint64_t> most_bytes);

  size_t num_devices() const { return room_.size(); }
  // All that it uses has room there at once.
  bool Fits(std::span<const RegionUse> uses, DeviceId device) const;
  // A task that touches these regions, each once, runs there next; it must fit. Appends what must be done before.
  void Use(std::span<const RegionUse> uses, DeviceId device, std::vector<DirectoryAction>& actions);
  // All contents go home: something there may read anything, or the graph is done. If it may write anything as well, no
  // other copy is valid afterwards.
  void BringHome(bool writes, std::vector<DirectoryAction>& actions);

  // Nobody will write it again: its contents may go home already.
  void SendHome(RegionId region, std::vector<DirectoryAction>& actions);

  CopyState state(RegionId region, DeviceId device) const;
  // How often it was written.
  uint32_t version(RegionId region) const { return regions_[region].version; }
  // Whoever wrote it last; home before that.
  DeviceId owner(RegionId region) const { return regions_[region].owner; }
  bool IsValid(RegionId region, DeviceId device) const { return (regions_[region].valid >> device & 1) != 0; }
  uint64_t used_bytes(DeviceId device) const { return room_[device].used; }
  uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct RegionState {
    uint64_t bytes = 0;
    uint32_t version = 0;
    uint16_t valid = 1;     // bit i: GPU i has it
    uint16_t resident = 1;  // bit i: GPU i has room for it
    DeviceId owner = kHome;
  };
  // Of a GPU: its copies, those to be dropped first in front.
  struct Room {
    uint64_t most = 0;
    uint64_t used = 0;
    uint64_t sent = 0;
    uint32_t first = kNone;
    uint32_t last = kNone;
  };
  struct Links {
    uint32_t before = kNone;
    uint32_t behind = kNone;
  };
  // Of regions, each once; in any order.
  struct RegionSet {
    std::vector<RegionId> members;
    std::vector<uint32_t> place;  // by region; kNone: not in it
    void Insert(RegionId region);
    void Erase(RegionId region);
  };

  RegionDirectory() = default;
  Links& links(RegionId region, DeviceId device) { return links_[region * num_devices() + device]; }
  void Unlink(RegionId region, DeviceId device);
  void LinkFirst(RegionId region, DeviceId device);
  void LinkLast(RegionId region, DeviceId device);
  void MakeRoom(uint64_t bytes, DeviceId device, std::vector<DirectoryAction>& actions);
  void Move(RegionId region, DeviceId from, DeviceId to, std::vector<DirectoryAction>& actions);
  void SetValid(RegionId region, uint16_t valid);
  DeviceId SourceOf(RegionId region) const;

  std::vector<RegionState> regions_;
  std::vector<Room> room_;
  std::vector<Links> links_;  // of resident copies elsewhere than home
  RegionSet abroad_;          // valid elsewhere than home
  RegionSet away_;            // not valid at home
  uint64_t moved_bytes_ = 0;
};

}  // namespace tally::scheduler
