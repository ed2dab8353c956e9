#include "server/daemon/grant_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "proto/control/socket_paths.h"

namespace tally::server {

GrantDesk::GrantDesk(RuntimeDir& runtime_dir, GrantBook& book, ClientListener& listener, ExecutorPool& pool)
    : runtime_dir_(runtime_dir), book_(book), listener_(listener), pool_(pool) {}

Status GrantDesk::Start(const std::vector<GrantSpec>& of_file) {
  TALLY_RETURN_IF_ERROR(book_.Load());
  const bool had_any = !book_.grants().empty();
  Reconcile(of_file);
  if (had_any || !of_file.empty()) TALLY_RETURN_IF_ERROR(book_.Save());
  for (const std::string& tenant : runtime_dir_.GrantDirectories()) {
    if (book_.Find(tenant) == nullptr) runtime_dir_.RemoveGrantDirectory(tenant);
  }
  // One that cannot be served costs the others nothing.
  for (const auto& [id, grant] : book_.grants()) {
    if (const Status opened = Open(grant); !opened.ok()) LOG_ERROR("no socket for {}", opened.message());
  }
  if (!book_.grants().empty()) LOG_INFO("{} grants have a socket of their own", book_.grants().size());
  return OkStatus();
}

void GrantDesk::Reconcile(const std::vector<GrantSpec>& of_file) {
  std::vector<uint64_t> gone;
  for (const auto& [id, grant] : book_.grants()) {
    const bool is_there = std::ranges::any_of(of_file, [&](auto& each) { return each.tenant == grant.spec.tenant; });
    if (grant.is_of_file && !is_there) gone.push_back(id);
  }
  for (const uint64_t id : gone) book_.Remove(id);
  for (const GrantSpec& spec : of_file) {
    if (const Grant* grant = book_.Find(spec.tenant)) {
      if (!grant->is_of_file) LOG_INFO("grant '{}' of tallyctl is the configuration's from now on", spec.tenant);
      book_.Change(grant->id, spec, true);
    } else if (const auto added = book_.Add(spec, true); !added) {
      LOG_ERROR("{}", added.error().message());
    }
  }
}

void GrantDesk::Reconfigure(const std::vector<GrantSpec>& of_file) {
  const std::map<uint64_t, Grant> before = book_.grants();
  Reconcile(of_file);
  if (const Status saved = book_.Save(); !saved.ok()) LOG_ERROR("{}", saved.message());
  for (const auto& [id, grant] : before) {
    if (book_.Find(id) == nullptr) Close(grant);
  }
  for (const auto& [id, grant] : book_.grants()) {
    if (before.contains(id)) continue;
    if (const Status opened = Open(grant); !opened.ok()) LOG_ERROR("no socket for {}", opened.message());
  }
}

Status GrantDesk::Open(const Grant& grant) {
  const std::string context = fmt::format("grant '{}'", grant.spec.tenant);
  const auto socket = runtime_dir_.MakeGrantDirectory(grant.spec.tenant);
  if (!socket) return socket.error().With(context);
  return listener_.OpenGrant(grant, *socket).With(context);
}

void GrantDesk::Close(const Grant& grant) {
  const Status why(StatusCode::kPermissionDenied,
                   fmt::format("the grant of tenant '{}' was revoked", grant.spec.tenant));
  LOG_INFO("{}", why.message());
  listener_.CloseGrant(grant, why);
  runtime_dir_.RemoveGrantDirectory(grant.spec.tenant);
  pool_.EndGrant(grant.id, grant.spec.tenant, why);
}

Result<GrantRow> GrantDesk::Create(const GrantSpec& spec) {
  if (const Status checked = CheckGrants({spec}, runtime_dir_.path()); !checked.ok()) return std::unexpected(checked);
  if (const Status honoured = pool_.CheckHonoured(spec); !honoured.ok()) return std::unexpected(honoured);
  if (const Status gpus = pool_.CheckGpus(spec); !gpus.ok()) return std::unexpected(gpus);
  const auto added = book_.Add(spec, false);
  if (!added) return std::unexpected(added.error());
  const Grant grant = **added;
  Status status = book_.Save();
  if (status.ok()) status = Open(grant);
  if (!status.ok()) {
    book_.Remove(grant.id);
    if (const Status saved = book_.Save(); !saved.ok()) LOG_ERROR("{}", saved.message());
    return std::unexpected(status);
  }
  LOG_INFO("grant '{}': {}, by {}", spec.tenant, PriorityClassName(spec.ceiling),
           control::GrantSocketIn(runtime_dir_.path(), spec.tenant));
  return RowOf(grant);
}

Result<Grant> GrantDesk::FindOwn(const std::string& tenant) const {
  const Grant* const found = book_.Find(tenant);
  if (found == nullptr) {
    return Error(StatusCode::kNotFound, "there is no such grant: 'tallyctl grant list' lists them");
  }
  if (found->is_of_file) {
    return Error(StatusCode::kFailedPrecondition,
                 fmt::format("grant '{}' is of tallyd's configuration: change it there, and have tallyd read it again "
                             "(SIGHUP)",
                             tenant));
  }
  return *found;
}

Status GrantDesk::Label(const std::string& tenant, const GrantLabels& labels) {
  const auto found = FindOwn(tenant);
  if (!found) return found.error();
  GrantSpec spec = found->spec;
  // Sessions of it that run are in contexts of the old namespace's tenants.
  if (spec.domain_policy == DomainPolicy::kNamespace && spec.label_namespace != labels.label_namespace) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("the domain of grant '{}' is its namespace's, which cannot change any more", tenant));
  }
  spec.label_namespace = labels.label_namespace;
  spec.pod = labels.pod;
  spec.container = labels.container;
  if (const Status checked = CheckGrant(spec); !checked.ok()) return checked;
  book_.Change(found->id, spec, false);
  const Status saved = book_.Save();
  if (!saved.ok()) book_.Change(found->id, found->spec, false);
  return saved;
}

Status GrantDesk::Revoke(const std::string& tenant) {
  const auto found = FindOwn(tenant);
  if (!found) return found.error();
  const Grant grant = *found;
  book_.Remove(grant.id);
  if (const Status saved = book_.Save(); !saved.ok()) {
    book_.Restore(grant);
    return saved;
  }
  Close(grant);
  return OkStatus();
}

std::vector<GrantRow> GrantDesk::Rows() const {
  std::vector<GrantRow> rows;
  std::map<uint64_t, size_t> num_sessions;
  for (const auto& executor : pool_.executors()) {
    for (const auto& [id, session] : executor->sessions) ++num_sessions[session.identity.grant_id];
  }
  for (const auto& [id, grant] : book_.grants()) {
    rows.push_back(RowOf(grant));
    const auto counted = num_sessions.find(id);
    if (counted != num_sessions.end()) rows.back().num_sessions = counted->second;
  }
  return rows;
}

GrantRow GrantDesk::RowOf(const Grant& grant) const {
  return {grant, control::GrantSocketIn(runtime_dir_.path(), grant.spec.tenant), 0};
}

}  // namespace tally::server
