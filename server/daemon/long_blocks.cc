#include "server/daemon/long_blocks.h"

#include <fmt/format.h>

#include "server/daemon/peer_facts.h"

namespace tally::server {

std::string StartedProgram::DomainName() const { return fmt::format("long-blocks-{:016x}", key.digest[0]); }

std::optional<StartedProgram> ProgramOf(const control::SessionIdentity& identity) {
  const std::string started_as = StartedAs(identity.pid);
  if (started_as.empty()) return std::nullopt;
  const std::string owner =
      identity.grant_id != 0 ? fmt::format("tenant-{}", identity.tenant_name) : fmt::format("user-{}", identity.uid);
  return StartedProgram{owner, FileCache::KeyOf({FileCache::BytesOf(started_as)})};
}

bool LongBlocks::Remember(const StartedProgram& program, const std::string& what) const {
  const FileCache files = FilesOf(program.owner);
  const bool is_kept = files.Keep(program.key, FileCache::BytesOf(what));
  // Whoever chooses his command line chooses the key.
  if (is_kept) files.Shrink();
  return is_kept;
}

std::optional<std::string> LongBlocks::Find(const StartedProgram& program) const {
  const auto found = FilesOf(program.owner).Find(program.key);
  if (!found) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(found->bytes.get()), found->size_bytes);
}

FileCache LongBlocks::FilesOf(const std::string& owner) const {
  return {cache_directory_.empty() ? "" : cache_directory_ + "/long-blocks/" + owner, max_bytes_each_};
}

}  // namespace tally::server
