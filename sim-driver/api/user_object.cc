#include "sim-driver/api/user_object.h"

#include <thread>

#include "sim-driver/api/error.h"
#include "sim-driver/api/handle_table.h"
#include "sim-driver/api/worker_pool.h"

namespace tally::sim_driver {
namespace {

HandleTable<CUuserObject, UserObject>& UserObjects() {
  static auto& table = *new HandleTable<CUuserObject, UserObject>("user-objects");
  return table;
}

WorkerPool& Destructors() {
  static auto& pool = *new WorkerPool("sim-destroy", 1);
  return pool;
}

}  // namespace

void UserObject::Retain(uint64_t count) {
  const std::lock_guard lock(mutex_);
  references_ += count;
}

bool UserObject::Release(uint64_t count) {
  const std::lock_guard lock(mutex_);
  Require(count <= references_, CUDA_ERROR_INVALID_VALUE);
  references_ -= count;
  if (references_ != 0 || count == 0) return false;
  Destructors().Enqueue(0, [destroy = destroy_, argument = argument_] { destroy(argument); });
  return true;
}

std::shared_ptr<UserObject> CreateUserObject(CUhostFn destroy, void* argument, uint64_t references) {
  auto object = std::make_shared<UserObject>(destroy, argument, references);
  const uint64_t value = NextHandleValue();
  object->handle = reinterpret_cast<CUuserObject>(value);
  UserObjects().InsertAt(value, object);
  return object;
}

std::shared_ptr<UserObject> FindUserObject(CUuserObject handle) {
  auto object = UserObjects().Find(handle);
  Require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
  return object;
}

void ReleaseUserObject(const std::shared_ptr<UserObject>& object, uint64_t count) {
  if (object->Release(count)) UserObjects().Remove(object->handle);
}

}  // namespace tally::sim_driver
