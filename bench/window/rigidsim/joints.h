// Work on joints: where they are, what actuators do, and what each kind of joint wants corrected.
#pragma once

#include "bench/window/rigidsim/bodies.h"

namespace rigidsim {

// New targets every eight steps.
struct SampleActions : Work {
  const int* clock;
  float* action;
  SampleActions(Declared& d, const Buffers& b) : Work(b), clock(d.Reads(b.clock)), action(d.Writes(b.action)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    action[At(row, e)] = Noise(e, row, 16 + static_cast<uint32_t>(*clock) / 8);
  }
};

// ---- Work on the rows of one group of joints.
struct JointWork : Work {
  const Joint* joints;
  int first;
  JointWork(Declared& d, const Buffers& b, const JointGroup& group)
      : Work(b), joints(d.Reads(b.joints, group.first, group.count)), first(group.first) {}
};

struct PlaceAnchors : JointWork {
  const float4* rotation;
  float4 *anchor_a, *anchor_b;  // from the bodies' centres, axes of the world
  PlaceAnchors(Declared& d, const Buffers& b, const JointGroup& g)
      : JointWork(d, b, g),
        rotation(d.Reads(b.rotation)),
        anchor_a(d.Writes(b.anchor_a, g.first, g.count)),
        anchor_b(d.Writes(b.anchor_b, g.first, g.count)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Joint& j = joints[first + row];
    const int at = At(first + row, e);
    anchor_a[at] = WithTail(Rotated(rotation[At(j.a, e)], j.anchor_a), 0);
    anchor_b[at] = WithTail(j.b < 0 ? j.anchor_b : Rotated(rotation[At(j.b, e)], j.anchor_b), 0);
  }
};
struct PlaceAxes : JointWork {
  const float4* rotation;
  float4 *axis_a, *axis_b, *second_a, *second_b;
  PlaceAxes(Declared& d, const Buffers& b, const JointGroup& g)
      : JointWork(d, b, g),
        rotation(d.Reads(b.rotation)),
        axis_a(d.Writes(b.axis_a, g.first, g.count)),
        axis_b(d.Writes(b.axis_b, g.first, g.count)),
        second_a(d.Writes(b.second_a, g.first, g.count)),
        second_b(d.Writes(b.second_b, g.first, g.count)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Joint& j = joints[first + row];
    const int at = At(first + row, e);
    const Quaternion a = rotation[At(j.a, e)], b = j.b < 0 ? make_float4(0, 0, 0, 1) : rotation[At(j.b, e)];
    axis_a[at] = WithTail(Rotated(a, j.axis_a), 0);
    axis_b[at] = WithTail(Rotated(b, j.axis_b), 0);
    second_a[at] = WithTail(Rotated(a, j.second_a), 0);
    second_b[at] = WithTail(Rotated(b, j.second_b), 0);
  }
};

// ---- Actuators: springs towards the targets. They run before the axes are placed, so they turn their own.
template <JointKind kKind>
struct Drive : JointWork {
  const float4 *rotation, *position, *velocity;
  const float* action;
  float4* result;  // of a gantry a force, else a torque
  Drive(Declared& d, const Buffers& b, const JointGroup& g)
      : JointWork(d, b, g),
        rotation(kKind == JointKind::kGantry ? nullptr : d.Reads(b.rotation)),
        position(kKind == JointKind::kGantry ? d.Reads(b.position) : nullptr),
        velocity(kKind == JointKind::kGantry ? d.Reads(b.linear_velocity) : nullptr),
        action(d.Reads(b.action)),
        result(d.Writes(kKind == JointKind::kGantry ? b.joint_force : b.joint_torque, g.first, g.count)) {}
  RIGIDSIM_BOTH float Target(const Joint& j, int k, int e) const { return action[At(j.first_action + k, e)]; }
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Joint& j = joints[first + row];
    float3 sum;
    if constexpr (kKind == JointKind::kGantry) {
      const float3 goal = j.anchor_b + Vector(Target(j, 0, e), Target(j, 1, e), Target(j, 2, e)) * 0.12f;
      sum = (goal - Vector(position[At(j.a, e)])) * j.gear - Vector(velocity[At(j.a, e)]) * (j.gear * 0.05f);
    } else {
      const Quaternion a = rotation[At(j.a, e)], b = rotation[At(j.b, e)];
      const float3 axis = Rotated(b, j.axis_b), second = Rotated(b, j.second_b);
      const float3 axis_a = Rotated(a, j.axis_a), second_a = Rotated(a, j.second_a);
      if constexpr (kKind == JointKind::kHinge) {
        sum = axis * (Target(j, 0, e) * 0.5f - Dot(Cross(second, second_a), axis));
      } else {
        sum = axis * (Target(j, 0, e) * 0.4f) + second * (Target(j, 1, e) * 0.4f);
        if constexpr (kKind == JointKind::kBall) sum = sum + Cross(axis, second) * (Target(j, 2, e) * 0.4f);
        sum = sum - (Cross(axis, axis_a) + Cross(second, second_a)) * 0.5f;
      }
      sum = sum * j.gear;
    }
    result[At(first + row, e)] = WithTail(sum, 0);
  }
};

// ---- Constraints.
template <JointKind kKind>
struct Constrain : JointWork {
  static constexpr bool kHasPoint = kKind <= JointKind::kBall;
  BodyReader body;
  const float4 *anchor_a, *anchor_b, *axis_a, *axis_b, *second_a, *second_b;
  float4 *linear, *angular;
  int num_joints;
  Constrain(Declared& d, const Buffers& b, const JointGroup& g)
      : JointWork(d, b, g),
        body(d, b),
        anchor_a(kHasPoint ? d.Reads(b.anchor_a, g.first, g.count) : nullptr),
        anchor_b(kHasPoint ? d.Reads(b.anchor_b, g.first, g.count) : nullptr),
        axis_a(d.Reads(b.axis_a, g.first, g.count)),
        axis_b(d.Reads(b.axis_b, g.first, g.count)),
        second_a(d.Reads(b.second_a, g.first, g.count)),
        second_b(d.Reads(b.second_b, g.first, g.count)),
        linear(d.Writes(b.joint_linear, g.first, g.count)),
        angular(d.Writes(b.joint_angular, g.first, g.count)),
        num_joints(b.joints.rows) {
    d.Writes(b.joint_linear, num_joints + g.first, g.count);
    d.Writes(b.joint_angular, num_joints + g.first, g.count);
  }
  // A direction of a may not be further from the same one of b than the joint's largest swing.
  static RIGIDSIM_BOTH float3 BackIntoCone(const Joint& j, float3 of_a, float3 of_b) {
    const float excess = j.upper - Dot(of_a, of_b);
    return excess > 0 ? Cross(of_a, of_b) * excess : Vector(0, 0, 0);
  }
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Joint& j = joints[first + row];
    const int at = At(first + row, e);
    const RigidBody a = body(j.a, e), b = body(j.b, e);
    const float3 main_a = Vector(axis_a[at]), main_b = Vector(axis_b[at]);
    const float3 side_a = Vector(second_a[at]), side_b = Vector(second_b[at]);
    Push push;
    float impulse;
    if constexpr (kHasPoint) {
      const float3 at_a = Vector(anchor_a[at]), at_b = Vector(anchor_b[at]);
      push = PushPoints(a, b, at_a, at_b, b.position + at_b - a.position - at_a, &impulse);
    } else if constexpr (kKind == JointKind::kPlanar) {
      push = PushPoints(a, b, Vector(0, 0, 0), Vector(0, 0, 0), Vector(0, -a.position.y, 0), &impulse);
    }
    if constexpr (kKind == JointKind::kHinge) {
      // The tangent of half the angle: no arc tangent is the same everywhere.
      const float t = Dot(Cross(side_b, side_a), main_b) / Larger(1e-3f, 1 + Dot(side_b, side_a));
      const float excess = t - Clamp(t, j.lower, j.upper);
      push.Add(TurnBodies(a, b, Cross(main_a, main_b) - main_b * (2 * excess / (1 + t * t))));
    } else if constexpr (kKind == JointKind::kUniversal || kKind == JointKind::kBall) {
      float3 error = BackIntoCone(j, main_a, main_b) + BackIntoCone(j, side_a, side_b);
      // A universal joint's two axes stay at right angles.
      if constexpr (kKind == JointKind::kUniversal) error = error - Cross(side_a, main_b) * Dot(side_a, main_b);
      push.Add(TurnBodies(a, b, error));
    } else if constexpr (kKind == JointKind::kPlanar) {
      push.Add(TurnBodies(a, b, Cross(main_a, main_b)));
    } else {
      push.Add(TurnBodies(a, b, (Cross(main_a, main_b) + Cross(side_a, side_b)) * 0.5f));
    }
    const int at_parent = At(num_joints + first + row, e);
    linear[at] = WithTail(push.linear_a, 1), angular[at] = WithTail(push.angular_a, 1);
    linear[at_parent] = WithTail(push.linear_b, 1), angular[at_parent] = WithTail(push.angular_b, 1);
  }
};

// Friction within joints; velocities.
struct Damp : JointWork {
  BodyReader body;
  const float4* velocity;
  float4* angular;
  int num_joints;
  Damp(Declared& d, const Buffers& b, const JointGroup& g)
      : JointWork(d, b, g),
        body(d, b),
        velocity(d.Reads(b.angular_velocity)),
        angular(d.Writes(b.joint_angular, g.first, g.count)),
        num_joints(b.joints.rows) {
    d.Writes(b.joint_angular, num_joints + g.first, g.count);
  }
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Joint& j = joints[first + row];
    const float3 spin_b = j.b < 0 ? Vector(0, 0, 0) : Vector(velocity[At(j.b, e)]);
    const float3 error = (spin_b - Vector(velocity[At(j.a, e)])) * (j.damping * kSeconds);
    const Push push = TurnBodies(body(j.a, e), body(j.b, e), error);
    angular[At(first + row, e)] = WithTail(push.angular_a, 1);
    angular[At(num_joints + first + row, e)] = WithTail(push.angular_b, 1);
  }
};

}  // namespace rigidsim
