// What tallyd shows this program of its tenant (proto/shm/tenant_view_abi.h). Thread-safe.
#pragma once

#include <memory>

#include "proto/shm/tenant_view_abi.h"

namespace tally::nvml {

using View = std::shared_ptr<const shm::TenantViewReply>;

// As it is now; null: no tallyd, or it does not answer in time.
View AskForView();
// The last one, or AskForView: for what does not change.
View LastView();

}  // namespace tally::nvml
