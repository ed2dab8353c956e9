// The grants that there are, by number and by name, and the file from which the next tallyd knows them.
//
// A number is never given twice while the file is there: a session of a grant that was revoked is not one of a new
// grant of the same name. Lives on the daemon's loop; owns no socket (grant_desk.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/daemon/grant.h"

namespace tally::server {

struct Grant {
  uint64_t id = 0;  // never 0
  GrantSpec spec;
  bool is_of_file = false;  // of the configuration: made and revoked there
};

class GrantBook {
 public:
  // `path`: of the file, which is made by the first Save.
  explicit GrantBook(std::string path) : path_(std::move(path)) {}

  // What an earlier tallyd has saved; no file: nothing. Not OK: one sentence, and the book is empty.
  Status Load();
  // All or nothing: whoever reads finds the last state that was saved whole.
  Status Save() const;

  // kAlreadyExists, kResourceExhausted, or what CheckGrant says. The book does not save itself.
  Result<const Grant*> Add(const GrantSpec& spec, bool is_of_file);
  // Its number stays; so do sessions.
  void Change(uint64_t id, const GrantSpec& spec, bool is_of_file);
  void Remove(uint64_t id) { grants_.erase(id); }
  // Brings back what Remove took.
  void Restore(const Grant& grant) { grants_[grant.id] = grant; }

  const Grant* Find(uint64_t id) const;
  const Grant* Find(const std::string& tenant) const;
  const std::map<uint64_t, Grant>& grants() const { return grants_; }

 private:
  std::string path_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Grant> grants_;
};

}  // namespace tally::server
