#include "server/daemon/grant_book.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

#include "base/replaced_file.h"
#include "base/unique_fd.h"

namespace tally::server {
namespace {

using Json = nlohmann::json;

Result<std::string> ReadAll(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return std::unexpected(StatusFromErrno(errno, fmt::format("read '{}'", path)));
  std::string text;
  char part[4096];
  ssize_t size = 0;
  while ((size = ::read(file.get(), part, sizeof(part))) > 0) text.append(part, static_cast<size_t>(size));
  if (size < 0) return std::unexpected(StatusFromErrno(errno, fmt::format("read '{}'", path)));
  return text;
}

}  // namespace

Status GrantBook::Load() {
  grants_.clear();
  struct stat state {};
  if (::lstat(path_.c_str(), &state) != 0 && errno == ENOENT) return OkStatus();
  const auto text = ReadAll(path_);
  if (!text) return text.error();
  const auto damaged = [&](const std::string& what) {
    grants_.clear();
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("'{}' is not as tallyd leaves it: {}; remove it, and grants made with tallyctl are gone",
                              path_, what));
  };
  const Json root = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("grants") || !root["grants"].is_array() || !root.contains("next_id") ||
      !root["next_id"].is_number_unsigned()) {
    return damaged("no list of grants");
  }
  next_id_ = std::max<uint64_t>(1, root["next_id"].get<uint64_t>());
  std::set<std::string> tenants;
  for (const Json& each : root["grants"]) {
    if (!each.is_object() || !each.contains("id") || !each["id"].is_number_unsigned() || !each.contains("grant")) {
      return damaged("a grant without a number");
    }
    auto spec = GrantFromJson(each["grant"]);
    if (!spec) return damaged(spec.error().message());
    if (const Status checked = CheckGrant(*spec); !checked.ok()) return damaged(checked.message());
    const auto id = each["id"].get<uint64_t>();
    if (id == 0 || id >= next_id_ || grants_.contains(id) || !tenants.insert(spec->tenant).second) {
      return damaged(fmt::format("grant '{}' is there twice", spec->tenant));
    }
    grants_[id] = {id, std::move(*spec), each.value("is_of_file", false)};
  }
  return OkStatus();
}

Status GrantBook::Save() const {
  Json list = Json::array();
  for (const auto& [id, grant] : grants_) {
    list.push_back({{"id", id}, {"is_of_file", grant.is_of_file}, {"grant", ToJson(grant.spec)}});
  }
  return ReplaceFile(path_, Json{{"next_id", next_id_}, {"grants", std::move(list)}}.dump(1) + "\n", 0600);
}

Result<const Grant*> GrantBook::Add(const GrantSpec& spec, bool is_of_file) {
  if (const Status checked = CheckGrant(spec); !checked.ok()) return std::unexpected(checked);
  if (Find(spec.tenant) != nullptr) {
    return Error(StatusCode::kAlreadyExists, fmt::format("there is a grant '{}' already", spec.tenant));
  }
  if (grants_.size() >= kMaxGrants) {
    return Error(StatusCode::kResourceExhausted,
                 fmt::format("grant '{}': there are {} grants already, as many as may be", spec.tenant, kMaxGrants));
  }
  const uint64_t id = next_id_++;
  return &(grants_[id] = {id, spec, is_of_file});
}

void GrantBook::Change(uint64_t id, const GrantSpec& spec, bool is_of_file) {
  grants_[id].spec = spec;
  grants_[id].is_of_file = is_of_file;
}

const Grant* GrantBook::Find(uint64_t id) const {
  const auto found = grants_.find(id);
  return found == grants_.end() ? nullptr : &found->second;
}

const Grant* GrantBook::Find(const std::string& tenant) const {
  const auto found = std::ranges::find_if(grants_, [&](const auto& each) { return each.second.spec.tenant == tenant; });
  return found == grants_.end() ? nullptr : &found->second;
}

}  // namespace tally::server
