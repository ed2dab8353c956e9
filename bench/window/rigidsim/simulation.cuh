// A plan's simulation as lists of launches, one per step, in program order. Which list a step gets depends on the
// contact groups that are near, and on whether an episode begins.
#pragma once

#include <map>
#include <utility>

#include "bench/window/rigidsim/contacts.h"
#include "bench/window/rigidsim/joints.h"
#include "bench/window/rigidsim/observe.h"

namespace rigidsim {

template <class AnyWork>
__global__ void __launch_bounds__(Launch::kThreads) Run(AnyWork work) {
  const int e = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (e < work.environments) work(static_cast<int>(blockIdx.y), e);
}

using StepList = std::vector<Launch>;

class Simulation {
 public:
  Simulation(const Plan& plan, int environments, bool on_device)
      : plan_(plan), memory_(on_device), buffers_(MakeBuffers(&memory_, plan, environments)) {
    // The streams of modes do not wait for the legacy stream, which is where memory is still being cleared.
    if (on_device) CHECK_CUDA(cudaDeviceSynchronize());
  }

  const Plan& plan() const { return plan_; }
  const Buffers& buffers() const { return buffers_; }
  const Memory& memory() const { return memory_; }
  uint32_t all_groups() const { return (1u << plan_.contact_groups.size()) - 1; }

  // Made once per kind of step; lives as long as the simulation.
  const StepList& Step(uint32_t active_groups, bool resets) {
    StepList& list = lists_[{active_groups, resets}];
    if (list.empty()) Build(&list, active_groups, resets);
    return list;
  }
  size_t num_lists() const { return lists_.size(); }

 private:
  template <class AnyWork, class... Arguments>
  static void Add(StepList* list, const char* name, size_t rows, const Buffers& buffers,
                  const Arguments&... arguments) {
    if (rows == 0) return;
    Declared declared;
    const AnyWork work(declared, buffers, arguments...);
    const void* kernel = reinterpret_cast<const void*>(&Run<AnyWork>);
    list->push_back(MakeLaunch(name, kernel, work, static_cast<int>(rows), declared));
  }

  void Build(StepList* list, uint32_t active, bool resets) {
    const Buffers& b = buffers_;
    const size_t bodies = plan_.bodies.size();
    Add<ClearImpulses>(list, "clear_impulses", plan_.contacts.size(), b);
    if (resets) {
      Add<ResetPoses>(list, "reset_poses", bodies, b);
      Add<ResetVelocities>(list, "reset_velocities", bodies, b);
      Add<ResetReturns>(list, "reset_returns", 1, b);
    }
    Add<SetClock>(list, "set_clock", 1, b, resets);
    Add<SampleActions>(list, "sample_actions", static_cast<size_t>(plan_.num_actions), b);
    for (int i = 0; i < kSubsteps; ++i) AddSubstep(list, active);
    Add<ObservePoses>(list, "observe_poses", bodies, b);
    Add<ObserveVelocities>(list, "observe_velocities", bodies, b);
    for (const JointGroup& g : plan_.joint_groups) {
      Add<ObserveJoints>(list, "observe_joints", static_cast<size_t>(g.count), b, g);
    }
    Add<ObserveContacts>(list, "observe_contacts", bodies, b);
    if (plan_.reaches) {
      Add<ReachTerm>(list, "reach_term", 1, b, plan_.reaching, plan_.target);
    } else {
      Add<ForwardTerm>(list, "forward_term", 1, b);
    }
    Add<UprightTerm>(list, "upright_term", 1, b);
    Add<EffortTerm>(list, "effort_term", 1, b);
    Add<SumReward>(list, "sum_reward", 1, b);
    Add<Energy>(list, "energy", 1, b);
    for (size_t g = 0; g < plan_.contact_groups.size(); ++g) {
      Add<Near>(list, "near", 1, b, plan_.contact_groups[g], static_cast<int>(g));
    }
    Add<SummariseNear>(list, "summarise_near", plan_.contact_groups.size(), b);
  }

  void AddSubstep(StepList* list, uint32_t active) {
    const Buffers& b = buffers_;
    const size_t bodies = plan_.bodies.size();
    for (const JointGroup& g : plan_.joint_groups) AddDrive(list, g);
    Add<IntegrateLinear>(list, "integrate_linear", bodies, b);
    Add<IntegrateAngular>(list, "integrate_angular", bodies, b);
    AddShapes(list, active);
    for (const JointGroup& g : plan_.joint_groups) {
      Add<PlaceAnchors>(list, "place_anchors", static_cast<size_t>(g.count), b, g);
      Add<PlaceAxes>(list, "place_axes", static_cast<size_t>(g.count), b, g);
    }
    for (const JointGroup& g : plan_.joint_groups) AddConstraint(list, g);
    ForActive(active, [&](const ContactGroup& g) { AddCollision(list, g); });
    ForActive(active, [&](const ContactGroup& g) {
      const size_t rows = static_cast<size_t>(g.count);
      g.IsPair() ? Add<Separate<true>>(list, "separate_pairs", rows, b, g)
                 : Add<Separate<false>>(list, "separate_plane", rows, b, g);
    });
    Add<CorrectPositions>(list, "correct_positions", bodies, b, active);
    Add<CorrectRotations>(list, "correct_rotations", bodies, b, active);
    Add<VelocityFromPositions>(list, "velocity_from_positions", bodies, b);
    Add<VelocityFromRotations>(list, "velocity_from_rotations", bodies, b);
    for (const JointGroup& g : plan_.joint_groups) Add<Damp>(list, "damp", static_cast<size_t>(g.count), b, g);
    ForActive(active, [&](const ContactGroup& g) {
      const size_t rows = static_cast<size_t>(g.count);
      g.IsPair() ? Add<Rub<true>>(list, "rub_pairs", rows, b, g) : Add<Rub<false>>(list, "rub_plane", rows, b, g);
    });
    const Array<float4> none;
    Add<CorrectVelocities>(list, "correct_linear", bodies, b, none, b.contact_linear, b.linear_velocity, active);
    Add<CorrectVelocities>(list, "correct_angular", bodies, b, b.joint_angular, b.contact_angular, b.angular_velocity,
                           active);
  }

  template <class Function>
  void ForActive(uint32_t active, Function function) {
    for (size_t g = 0; g < plan_.contact_groups.size(); ++g) {
      if (active >> g & 1) function(plan_.contact_groups[g]);
    }
  }

  // Only shapes that somebody looks at.
  void AddShapes(StepList* list, uint32_t active) {
    const Buffers& b = buffers_;
    bool spheres = false, capsules = false, corners = false;
    ForActive(active, [&](const ContactGroup& g) {
      const ContactKind k = g.kind;
      spheres |= k == ContactKind::kSpherePlane || k == ContactKind::kSphereCapsule || k == ContactKind::kSphereBox;
      capsules |=
          k == ContactKind::kCapsulePlane || k == ContactKind::kSphereCapsule || k == ContactKind::kCapsuleCapsule;
      corners |= k == ContactKind::kBoxPlane;
    });
    auto rows = [](bool wanted, const Array<float4>& points) { return wanted ? static_cast<size_t>(points.rows) : 0; };
    Add<Place<ShapeKind::kSphere>>(list, "place_spheres", rows(spheres, b.sphere_centres), b, b.spheres,
                                   b.sphere_centres);
    Add<Place<ShapeKind::kCapsule>>(list, "place_capsules", rows(capsules, b.capsule_ends), b, b.capsules,
                                    b.capsule_ends);
    Add<Place<ShapeKind::kBox>>(list, "place_boxes", rows(corners, b.box_corners), b, b.boxes, b.box_corners);
  }

  void AddDrive(StepList* list, const JointGroup& g) {
    const size_t rows = static_cast<size_t>(g.count);
    switch (g.kind) {
      case JointKind::kHinge:
        return Add<Drive<JointKind::kHinge>>(list, "drive_hinges", rows, buffers_, g);
      case JointKind::kUniversal:
        return Add<Drive<JointKind::kUniversal>>(list, "drive_universals", rows, buffers_, g);
      case JointKind::kBall:
        return Add<Drive<JointKind::kBall>>(list, "drive_balls", rows, buffers_, g);
      case JointKind::kGantry:
        return Add<Drive<JointKind::kGantry>>(list, "drive_gantry", rows, buffers_, g);
      case JointKind::kPlanar:
        return;
    }
  }
  void AddConstraint(StepList* list, const JointGroup& g) {
    const size_t rows = static_cast<size_t>(g.count);
    switch (g.kind) {
      case JointKind::kHinge:
        return Add<Constrain<JointKind::kHinge>>(list, "constrain_hinges", rows, buffers_, g);
      case JointKind::kUniversal:
        return Add<Constrain<JointKind::kUniversal>>(list, "constrain_universals", rows, buffers_, g);
      case JointKind::kBall:
        return Add<Constrain<JointKind::kBall>>(list, "constrain_balls", rows, buffers_, g);
      case JointKind::kGantry:
        return Add<Constrain<JointKind::kGantry>>(list, "constrain_gantry", rows, buffers_, g);
      case JointKind::kPlanar:
        return Add<Constrain<JointKind::kPlanar>>(list, "constrain_planar", rows, buffers_, g);
    }
  }
  void AddCollision(StepList* list, const ContactGroup& g) {
    const Buffers& b = buffers_;
    const size_t rows = static_cast<size_t>(g.count);
    switch (g.kind) {
      case ContactKind::kSpherePlane:
        return Add<CollidePlane<ShapeKind::kSphere>>(list, "collide_sphere_plane", rows, b, g, b.sphere_centres);
      case ContactKind::kCapsulePlane:
        return Add<CollidePlane<ShapeKind::kCapsule>>(list, "collide_capsule_plane", rows, b, g, b.capsule_ends);
      case ContactKind::kBoxPlane:
        return Add<CollidePlane<ShapeKind::kBox>>(list, "collide_box_plane", rows, b, g, b.box_corners);
      case ContactKind::kSphereCapsule:
        return Add<CollideSphereCapsule>(list, "collide_sphere_capsule", rows, b, g);
      case ContactKind::kCapsuleCapsule:
        return Add<CollideCapsules>(list, "collide_capsules", rows, b, g);
      case ContactKind::kSphereBox:
        return Add<CollideSphereBox>(list, "collide_sphere_box", rows, b, g);
    }
  }

  const Plan plan_;
  Memory memory_;
  const Buffers buffers_;
  std::map<std::pair<uint32_t, bool>, StepList> lists_;
};

}  // namespace rigidsim
