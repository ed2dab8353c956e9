// What clients are told of their tenant, on connections that are no session's (proto/shm/tenant_view_abi.h).
#include "proto/control/tenant_page_name.h"
#include "server/daemon/client_listener.h"
#include "server/daemon/printable_name.h"
#include "server/daemon/tenant_view.h"

namespace tally::server {
namespace {

// For executors to say what a view is made of: a busy one shows what it said before.
constexpr std::chrono::milliseconds kViewLimit{200};

}  // namespace

// Executors are asked by one such request at a time: whoever comes meanwhile gets what is known.
void ClientListener::OnViewRequest(uint64_t pending_id, const shm::TenantViewRequest& request) {
  if (is_asking_for_view_) return ShowView(pending_id, request);
  is_asking_for_view_ = true;
  pool_.Query(kViewLimit, [this, pending_id, request] {
    is_asking_for_view_ = false;
    if (pending_.contains(pending_id)) ShowView(pending_id, request);
  });
}

void ClientListener::ShowView(uint64_t pending_id, const shm::TenantViewRequest& request) {
  const Pending& pending = pending_.at(pending_id);
  const Grant* const grant = grants_.Find(pending.grant_id);
  shm::TenantViewReply view{};
  if (grant == nullptr && pending.grant_id != kCommonDoor) {
    view.status_code = static_cast<uint32_t>(StatusCode::kPermissionDenied);
  } else {
    const GrantSpec* const granted = grant != nullptr ? &grant->spec : nullptr;
    const ViewOwner owner{pending.grant_id, pending.peer.uid,
                          granted != nullptr ? granted->tenant : TenantName(request.tenant_name),
                          MemoryLimit(request.device_memory_bytes, granted),
                          granted != nullptr ? control::JoinedGpus(granted->gpus) : ""};
    view = ViewOf(pool_, runtime_dir_.PathOf(control::kTenantsDirectory), owner);
  }
  view.magic = shm::kViewMagic;
  view.protocol_version = shm::kProtocolVersion;
  (void)SendMessage(pending.socket.get(), std::as_bytes(std::span(&view, 1)), {});
  Drop(pending_id);
}

}  // namespace tally::server
