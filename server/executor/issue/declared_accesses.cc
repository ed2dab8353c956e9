#include "server/executor/issue/declared_accesses.h"

namespace tally::server {

const char* FindDeclared(const PendingLaunch& launch, const LaunchMemory& memory, LaunchAccesses* accesses) {
  if ((launch.flags & shm::kLaunchOpaque) != 0) return "declared";
  accesses->accesses.clear();
  for (size_t i = 0; i < launch.declared.size(); ++i) {
    const auto& [address, row_bytes, rows, pitch] = launch.declared[i];
    if (row_bytes == 0 || rows == 0) continue;
    const auto box = scheduler::Box::Rows(address, row_bytes, rows, pitch);
    if (!box) return "unknown-memory";  // it ends behind the last address
    if (const char* why = WhyNotBeside(*box, memory)) return why;
    const bool is_read = i < launch.num_declared_reads;
    accesses->accesses.push_back({*box, is_read ? scheduler::AccessKind::kRead : scheduler::AccessKind::kWrite});
  }
  return nullptr;
}

}  // namespace tally::server
