#include "server/executor/session/shared_objects.h"

#include <sys/random.h>
#include <unistd.h>

#include "server/executor/session/virtual_memory.h"

namespace tally::server {
namespace {

bool FillRandom(void* out, size_t size_bytes) {
  return ::getrandom(out, size_bytes, 0) == static_cast<ssize_t>(size_bytes);
}

shm::SharedName NameOf(uint64_t executor, const std::pair<uint64_t, uint64_t>& token, shm::SharedKind kind) {
  shm::SharedName name{};
  name.magic = shm::kSharedMagic;
  name.executor = executor;
  name.token[0] = token.first;
  name.token[1] = token.second;
  name.kind = static_cast<uint32_t>(kind);
  name.process = static_cast<uint32_t>(::getpid());
  return name;
}

}  // namespace

SharedObjects::SharedObjects() {
  if (!FillRandom(&executor_, sizeof(executor_))) executor_ = 0;
}

bool SharedObjects::NewName(shm::SharedKind kind, shm::SharedName* name) const {
  Token token;
  if (executor_ == 0 || !FillRandom(&token.first, sizeof(token.first)) ||
      !FillRandom(&token.second, sizeof(token.second))) {
    return false;
  }
  *name = NameOf(executor_, token, kind);
  return true;
}

Status SharedObjects::CheckName(const shm::SharedName& name) const {
  if (name.magic != shm::kSharedMagic) return Status(StatusCode::kNotFound, "not a name of Tally's");
  if (name.executor != executor_) return Status(StatusCode::kFailedPrecondition, "another executor's object");
  return OkStatus();
}

bool SharedObjects::Offer(const Object& object, shm::SharedName* name) {
  const std::lock_guard lock(mutex_);
  const std::pair key(object.kind, object.key);
  if (const auto known = held_.find(key); known != held_.end()) {
    *name = NameOf(executor_, known->second.token, object.kind);
    return true;
  }
  if (!NewName(object.kind, name)) return false;
  const Token token(name->token[0], name->token[1]);
  held_.emplace(key, Held{object, token});
  by_token_.emplace(token, key);
  num_held_.store(held_.size(), std::memory_order_release);
  return true;
}

Result<SharedObjects::Object> SharedObjects::Open(const shm::SharedName& name) {
  if (const Status status = CheckName(name); !status.ok()) return std::unexpected(status);
  const std::lock_guard lock(mutex_);
  const auto found = by_token_.find(Token(name.token[0], name.token[1]));
  if (found == by_token_.end() || found->second.first != static_cast<shm::SharedKind>(name.kind)) {
    return Error(StatusCode::kNotFound, "no such shared object");
  }
  Held& held = held_.at(found->second);
  if (!held.is_offered) return Error(StatusCode::kNotFound, "its owner has freed it");
  ++held.num_holders;
  return held.object;
}

bool SharedObjects::Drop(shm::SharedKind kind, uint64_t key, bool is_owner) {
  if (num_held_.load(std::memory_order_acquire) == 0) return true;
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(std::pair(kind, key));
  if (found == held_.end()) return true;
  if (is_owner) found->second.is_offered = false;
  if (--found->second.num_holders != 0) return false;
  by_token_.erase(found->second.token);
  held_.erase(found);
  num_held_.store(held_.size(), std::memory_order_release);
  return true;
}

void SharedObjects::ForgetGonePhysical() {
  std::erase_if(physical_, [](const auto& entry) { return entry.second.memory.expired(); });
}

bool SharedObjects::OfferPhysical(const std::shared_ptr<PhysicalMemory>& memory,
                                  const std::function<SharedDriverHandle()>& make_handle, shm::SharedName* name) {
  std::unique_lock lock(mutex_);
  ForgetGonePhysical();
  for (const auto& [token, known] : physical_) {
    if (known.memory.lock() != memory) continue;
    *name = known.name;
    return true;
  }
  if (!NewName(shm::SharedKind::kPhysical, name)) return false;
  lock.unlock();
  SharedDriverHandle handle = make_handle();
  lock.lock();
  // Offered by two sessions at once it has two names, which are equally good.
  if (memory->handle == nullptr) memory->handle = std::move(handle);
  physical_.emplace(Token(name->token[0], name->token[1]), OfferedPhysical{memory, *name});
  return true;
}

Result<std::shared_ptr<PhysicalMemory>> SharedObjects::OpenPhysical(const shm::SharedName& name) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(Token(name.token[0], name.token[1]));
  if (found != physical_.end() && found->second.name.executor == name.executor) {
    if (auto memory = found->second.memory.lock()) return memory;
  }
  if (const Status status = CheckName(name); !status.ok()) return std::unexpected(status);
  return Error(StatusCode::kNotFound, "no such physical memory, or nobody holds it any more");
}

std::shared_ptr<PhysicalMemory> SharedObjects::AddImported(const shm::SharedName& name,
                                                           std::shared_ptr<PhysicalMemory> memory) {
  const std::lock_guard lock(mutex_);
  ForgetGonePhysical();
  OfferedPhysical& place = physical_[Token(name.token[0], name.token[1])];
  if (auto known = place.memory.lock()) return known;
  place = {memory, name};
  return memory;
}

Result<SharedObjects::Outline> SharedObjects::PhysicalForOthers(const Token& token) const {
  const auto found = physical_.find(token);
  const auto memory = found != physical_.end() ? found->second.memory.lock() : nullptr;
  if (memory == nullptr) return Error(StatusCode::kNotFound, "no such physical memory");
  return Outline{memory->size_bytes, static_cast<int>(memory->properties.device), memory->properties, memory->handle};
}

Result<SharedObjects::Outline> SharedObjects::ForOthers(const shm::SharedName& name) const {
  if (const Status status = CheckName(name); !status.ok()) return std::unexpected(status);
  const Token token(name.token[0], name.token[1]);
  const std::lock_guard lock(mutex_);
  if (static_cast<shm::SharedKind>(name.kind) == shm::SharedKind::kPhysical) return PhysicalForOthers(token);
  const auto found = by_token_.find(token);
  if (found == by_token_.end() || found->second.first != static_cast<shm::SharedKind>(name.kind)) {
    return Error(StatusCode::kNotFound, "no such shared object");
  }
  const Held& held = held_.at(found->second);
  if (!held.is_offered) return Error(StatusCode::kNotFound, "its owner has freed it");
  return Outline{held.object.size_bytes, held.object.device, {}, held.object.handle};
}

}  // namespace tally::server
