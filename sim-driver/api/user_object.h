// User objects: program-owned things that live as long as the graphs that use them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>

namespace tally::sim_driver {

// Calls the program's destructor, on a thread of ours, when the last reference is gone.
class UserObject {
 public:
  UserObject(CUhostFn destroy, void* argument, uint64_t references)
      : destroy_(destroy), argument_(argument), references_(references) {}

  void Retain(uint64_t count);
  // True when that was the last one.
  bool Release(uint64_t count);

  CUuserObject handle = nullptr;

 private:
  const CUhostFn destroy_;
  void* const argument_;
  std::mutex mutex_;
  uint64_t references_;
};

std::shared_ptr<UserObject> CreateUserObject(CUhostFn destroy, void* argument, uint64_t references);
std::shared_ptr<UserObject> FindUserObject(CUuserObject handle);
void ReleaseUserObject(const std::shared_ptr<UserObject>& object, uint64_t count);

// References that a graph holds; copies of the graph share the holder.
class UserReference {
 public:
  UserReference(std::shared_ptr<UserObject> object, uint64_t count) : object_(std::move(object)), count_(count) {}
  UserReference(const UserReference&) = delete;
  UserReference& operator=(const UserReference&) = delete;
  ~UserReference() {
    if (count_ != 0) ReleaseUserObject(object_, count_);
  }
  const std::shared_ptr<UserObject>& object() const { return object_; }
  uint64_t count() const { return count_; }
  void Drop(uint64_t count) { count_ -= count; }

 private:
  std::shared_ptr<UserObject> object_;
  uint64_t count_;
};

}  // namespace tally::sim_driver
