// The memory of a simulation: one allocation per array, on the GPU or (for the reference) on the host.
#pragma once

#include <vector>

#include "bench/window/rigidsim/launch.h"
#include "bench/window/rigidsim/plan.h"
#include "tests/programs/check.h"

namespace rigidsim {

constexpr int kSubsteps = 4;
constexpr float kSeconds = 0.0025f;  // of a substep
constexpr float kGravity = 9.81f;
// Bounds of how far a body gets in a substep: what is not near now cannot touch soon (NearPlane).
constexpr float kMaxSpeed = 4, kMaxSpin = 20;
constexpr int kNearLag = 2;  // the host knows what was near after the step before the previous one
constexpr float kReach = kMaxSpeed * kSeconds * kSubsteps * kNearLag;
// Corrections of all constraints are found side by side and then added (Jacobi): each does a part only.
constexpr float kRelaxation = 0.5f;
constexpr int kNearChunks = 32;

struct Buffers {
  int environments = 0;
  // Tables, the same for all environments.
  Array<Body> bodies;
  Array<Joint> joints;
  Array<Shape> spheres, capsules, boxes;
  Array<Contact> contacts;
  Array<int> joint_rows;
  Array<ContactRow> contact_rows;
  // Rows of a column per environment: bodies, ...
  Array<float4> position, rotation, previous_position, previous_rotation, linear_velocity, angular_velocity;
  // ... actions, joints (twice as many corrections as joints), ...
  Array<float> action;
  Array<float4> joint_force, joint_torque, anchor_a, anchor_b, axis_a, axis_b, second_a, second_b;
  Array<float4> joint_linear, joint_angular;
  // ... shapes in the world, contacts (point and depth, normal), ...
  Array<float4> sphere_centres, capsule_ends, box_corners, contact_point, contact_normal;
  Array<float> contact_impulse;
  Array<float4> contact_linear, contact_angular;
  // ... what a learner reads, ...
  Array<float> observations, reward_terms, reward, returns, energy;
  // ... contact groups.
  Array<int> near, near_chunks, clock;
};

// Owns what it hands out.
class Memory {
 public:
  explicit Memory(bool on_device) : on_device_(on_device) {}
  ~Memory() {
    for (void* block : blocks_) on_device_ ? static_cast<void>(cudaFree(block)) : free(block);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Zeroed.
  template <class T>
  Array<T> Make(int rows, int columns) {
    const size_t bytes = sizeof(T) * static_cast<size_t>(rows) * static_cast<size_t>(columns);
    if (bytes == 0) return {};
    void* block = nullptr;
    if (on_device_) {
      CHECK_CUDA(cudaMalloc(&block, bytes));
      CHECK_CUDA(cudaMemset(block, 0, bytes));
    } else {
      block = calloc(1, bytes);
      if (block == nullptr) check::Fail("out of memory");
    }
    blocks_.push_back(block);
    return {static_cast<T*>(block), rows, columns};
  }
  template <class T>
  Array<T> Table(const std::vector<T>& rows) {
    Array<T> array = Make<T>(static_cast<int>(rows.size()), 1);
    if (!rows.empty()) Copy(array.pointer, rows.data(), rows.size() * sizeof(T));
    return array;
  }
  template <class T>
  std::vector<T> Contents(const Array<T>& array) const {
    std::vector<T> values(static_cast<size_t>(array.rows) * static_cast<size_t>(array.columns));
    if (!values.empty()) Copy(values.data(), array.pointer, values.size() * sizeof(T));
    return values;
  }
  bool on_device() const { return on_device_; }

 private:
  void Copy(void* to, const void* from, size_t bytes) const {
    if (on_device_) {
      CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    } else {
      memcpy(to, from, bytes);
    }
  }

  const bool on_device_;
  std::vector<void*> blocks_;
};

inline Buffers MakeBuffers(Memory* memory, const Plan& plan, int environments) {
  auto count = [](const auto& list) { return static_cast<int>(list.size()); };
  const int num_bodies = count(plan.bodies), num_joints = count(plan.joints), num_contacts = count(plan.contacts);
  Buffers b;
  b.environments = environments;
  b.bodies = memory->Table(plan.bodies);
  b.joints = memory->Table(plan.joints);
  b.spheres = memory->Table(plan.spheres);
  b.capsules = memory->Table(plan.capsules);
  b.boxes = memory->Table(plan.boxes);
  b.contacts = memory->Table(plan.contacts);
  b.joint_rows = memory->Table(plan.joint_rows);
  b.contact_rows = memory->Table(plan.contact_rows);
  for (Array<float4>* array : {&b.position, &b.rotation, &b.previous_position, &b.previous_rotation, &b.linear_velocity,
                               &b.angular_velocity}) {
    *array = memory->Make<float4>(num_bodies, environments);
  }
  b.action = memory->Make<float>(plan.num_actions, environments);
  for (Array<float4>* array :
       {&b.joint_force, &b.joint_torque, &b.anchor_a, &b.anchor_b, &b.axis_a, &b.axis_b, &b.second_a, &b.second_b}) {
    *array = memory->Make<float4>(num_joints, environments);
  }
  for (Array<float4>* array : {&b.joint_linear, &b.joint_angular})
    *array = memory->Make<float4>(2 * num_joints, environments);
  b.sphere_centres = memory->Make<float4>(count(plan.spheres), environments);
  b.capsule_ends = memory->Make<float4>(2 * count(plan.capsules), environments);
  b.box_corners = memory->Make<float4>(8 * count(plan.boxes), environments);
  for (Array<float4>* array : {&b.contact_point, &b.contact_normal})
    *array = memory->Make<float4>(num_contacts, environments);
  b.contact_impulse = memory->Make<float>(num_contacts, environments);
  for (Array<float4>* array : {&b.contact_linear, &b.contact_angular}) {
    *array = memory->Make<float4>(2 * num_contacts, environments);
  }
  b.observations = memory->Make<float>(7 * num_bodies + 2 * num_joints, environments);
  b.reward_terms = memory->Make<float>(3, environments);
  for (Array<float>* array : {&b.reward, &b.returns, &b.energy}) *array = memory->Make<float>(1, environments);
  b.near = memory->Make<int>(count(plan.contact_groups), environments);
  b.near_chunks = memory->Make<int>(count(plan.contact_groups), kNearChunks);
  b.clock = memory->Make<int>(1, 1);
  return b;
}

}  // namespace rigidsim
