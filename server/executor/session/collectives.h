// Programs of one executor that are ranks of one NCCL communicator. They hang sooner or later: a call of one waits in
// the driver, with locks, for a kernel that waits for the other's (docs/driver-waits.md). So the second of them is told
// when the communicator starts, and gets a domain of its own instead (docs/sharing.md).
//
// They are known by two things together: both look for NCCL's kernels, and both use the same piece of shared memory,
// which is how NCCL's ranks of one machine meet. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

namespace tally::server {

class Collectives {
 public:
  // What programs share: the token of an offered object, or device and inode of a file.
  using Key = std::pair<uint64_t, uint64_t>;
  // Of one program: what is beyond that is not looked at.
  static constexpr size_t kMostKeys = 4096;

  // `session`: any address that is its own.
  void NoteKernel(const void* session, std::string_view name);
  // `session` offers or opens it. False: a second rank; it must not.
  bool MayUse(const void* session, const Key& key);
  void Forget(const void* session);

 private:
  std::mutex mutex_;
  std::map<const void*, std::set<Key>> ranks_;  // those that have looked for kernels of NCCL
};

// For the log.
inline constexpr const char* kSecondRank =
    "two ranks of NCCL in one executor would hang: start them by torchrun, mpirun or srun, or by 'tally-run --apart', "
    "so that each gets an executor of its own (docs/sharing.md)";

}  // namespace tally::server
