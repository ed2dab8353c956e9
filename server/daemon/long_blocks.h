// Programs known for kernels with blocks that no gate ends in time (scheduler::GateChoice::kLongBlocks). In one context
// with a service such a program makes it wait for milliseconds: the next time that it starts it gets one of its own.
//
//   executor -- LongBlocks --> ExecutorPool --> Remember: CACHE/long-blocks/user-1000/DIGEST
//   it starts again            ExecutorPool --> Find:     domain long-blocks-DIGEST
//
// A program is what the kernel says it was started as, and whose it is: its user, or the tenant of its grant. Nothing
// that it tells tallyd counts. It can change its command line, and so get its own user a context more, within
// max_domains_per_user. Everybody has a folder and a bound of his own: nobody makes tallyd take, or forget, a program
// for another's. To forget one, remove its file, or the folder.
//
// No state but the files. Called on the daemon's loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/file_cache.h"
#include "proto/control/executor_link_abi.h"

namespace tally::server {

struct StartedProgram {
  std::string owner;   // as a folder is called: "user-1000", "tenant-team-a"
  FileCache::Key key;  // of what it was started as (peer_facts.h)

  // Of its own.
  std::string DomainName() const;
};

// nullopt: /proc does not say, because it has ended, or tallyd sees nothing of other users' processes.
std::optional<StartedProgram> ProgramOf(const control::SessionIdentity& identity);

class LongBlocks {
 public:
  static constexpr uint64_t kMaxBytesEach = 64 << 10;  // of each user and tenant: some hundred programs

  // Empty: nothing is kept.
  explicit LongBlocks(std::string cache_directory, uint64_t max_bytes_each = kMaxBytesEach)
      : cache_directory_(std::move(cache_directory)), max_bytes_each_(max_bytes_each) {}

  // `what` was seen, for people. False: it could not be kept.
  bool Remember(const StartedProgram& program, const std::string& what) const;
  std::optional<std::string> Find(const StartedProgram& program) const;

 private:
  FileCache FilesOf(const std::string& owner) const;

  const std::string cache_directory_;
  const uint64_t max_bytes_each_;
};

}  // namespace tally::server
