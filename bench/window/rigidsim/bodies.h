// Work on bodies: the start of an episode, motion, and adding up what joints and contacts want corrected.
// The method is extended position-based dynamics with small steps (Macklin et al. 2019, Mueller et al. 2020).
#pragma once

#include "bench/window/rigidsim/buffers.h"

namespace rigidsim {

struct Work {
  int environments;
  explicit Work(const Buffers& b) : environments(b.environments) {}
  RIGIDSIM_BOTH int At(int row, int e) const { return row * environments + e; }
};

// In [-1, 1), a multiple of 2^-23: the same everywhere.
RIGIDSIM_BOTH float Noise(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca77u ^ (c + 0x165667b1u) * 0xc2b2ae3du;
  for (int i = 0; i < 2; ++i) x = (x ^ (x >> 15)) * 0x2c1b3c6du, x ^= x >> 12, x *= 0x297a2d39u;
  return static_cast<float>(static_cast<int>((x ^ (x >> 15)) >> 8) - (1 << 23)) * (1.0f / (1 << 23));
}

// ---- A body as constraints see it; the world does not move.
struct RigidBody {
  float3 position;
  Quaternion rotation;
  float3 inverse_inertia;
  float inverse_mass;

  RIGIDSIM_BOTH float3 SpunBy(float3 angular_impulse) const {
    return Rotated(rotation, inverse_inertia * Rotated(Conjugate(rotation), angular_impulse));
  }
  // Inverse of the mass that `direction` feels at `offset` from the centre.
  RIGIDSIM_BOTH float Mobility(float3 offset, float3 direction) const {
    const float3 lever = Cross(offset, direction);
    return inverse_mass + Dot(lever, SpunBy(lever));
  }
};
struct BodyReader {
  const Body* bodies;
  const float4 *position, *rotation;
  int environments;

  BodyReader(Declared& d, const Buffers& b)
      : bodies(d.Reads(b.bodies)),
        position(d.Reads(b.position)),
        rotation(d.Reads(b.rotation)),
        environments(b.environments) {}
  RIGIDSIM_BOTH RigidBody operator()(int body, int e) const {
    if (body < 0) return {Vector(0, 0, 0), make_float4(0, 0, 0, 1), Vector(0, 0, 0), 0};
    const int at = body * environments + e;
    return {Vector(position[at]), rotation[at], bodies[body].inverse_inertia, bodies[body].inverse_mass};
  }
};

// What two bodies do so that nothing of `error` remains between them.
struct Push {
  float3 linear_a = {0, 0, 0}, angular_a = {0, 0, 0}, linear_b = {0, 0, 0}, angular_b = {0, 0, 0};
  RIGIDSIM_BOTH void Add(const Push& o) {
    linear_a = linear_a + o.linear_a, angular_a = angular_a + o.angular_a;
    linear_b = linear_b + o.linear_b, angular_b = angular_b + o.angular_b;
  }
};
// Moves a's point by `error` relative to b's. `impulse`: how much that takes.
RIGIDSIM_BOTH Push PushPoints(const RigidBody& a, const RigidBody& b, float3 at_a, float3 at_b, float3 error,
                              float* impulse) {
  const float size = Length(error);
  *impulse = 0;
  if (size < 1e-9f) return {};
  const float3 direction = error * (1 / size);
  *impulse = size / (a.Mobility(at_a, direction) + b.Mobility(at_b, direction));
  const float3 p = direction * *impulse;
  return {p * a.inverse_mass, a.SpunBy(Cross(at_a, p)), -p * b.inverse_mass, -b.SpunBy(Cross(at_b, p))};
}
RIGIDSIM_BOTH Push TurnBodies(const RigidBody& a, const RigidBody& b, float3 error) {
  const float size = Length(error);
  if (size < 1e-9f) return {};
  const float3 direction = error * (1 / size);
  const float3 p = direction * (size / (Dot(direction, a.SpunBy(direction)) + Dot(direction, b.SpunBy(direction))));
  return {Vector(0, 0, 0), a.SpunBy(p), Vector(0, 0, 0), -b.SpunBy(p)};
}

// ---- The start of an episode: all bodies of a robot are moved alike, bodies without joints each for itself.
struct ResetPoses : Work {
  const Body* bodies;
  float4 *position, *rotation;
  ResetPoses(Declared& d, const Buffers& b)
      : Work(b), bodies(d.Reads(b.bodies)), position(d.Writes(b.position)), rotation(d.Writes(b.rotation)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const Body& row = bodies[body];
    const uint32_t who = row.joint_begin == row.joint_end ? static_cast<uint32_t>(body + 1) : 0;
    const float3 shift = Vector(Noise(e, who, 1) * 0.02f, Noise(e, who, 2) * 0.02f, Noise(e, who, 3) * 0.04f);
    position[At(body, e)] = WithTail(row.start + shift, 0);
    rotation[At(body, e)] = row.start_rotation;
  }
};
struct ResetVelocities : Work {
  float4 *linear, *angular;
  ResetVelocities(Declared& d, const Buffers& b)
      : Work(b), linear(d.Writes(b.linear_velocity)), angular(d.Writes(b.angular_velocity)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    linear[At(body, e)] = make_float4(Noise(e, 0, 4) * 0.2f, 0, 0, 0);
    angular[At(body, e)] = make_float4(0, 0, 0, 0);
  }
};
struct ResetReturns : Work {
  float* returns;
  ResetReturns(Declared& d, const Buffers& b) : Work(b), returns(d.Writes(b.returns)) {}
  RIGIDSIM_BOTH void operator()(int, int e) const { returns[e] = 0; }
};
// The step's number is in memory, so that a step's launches are the same each time.
struct SetClock : Work {
  int* clock;
  bool is_reset;
  SetClock(Declared& d, const Buffers& b, bool resets) : Work(b), clock(d.Updates(b.clock)), is_reset(resets) {
    environments = 1;
  }
  RIGIDSIM_BOTH void operator()(int, int) const { *clock = is_reset ? 0 : *clock + 1; }
};

// ---- Motion under forces; where the body was is kept for VelocityFrom...
struct IntegrateLinear : Work {
  const Body* bodies;
  const float4* force;
  float4 *position, *previous, *velocity;
  IntegrateLinear(Declared& d, const Buffers& b)
      : Work(b),
        bodies(d.Reads(b.bodies)),
        force(d.Reads(b.joint_force)),
        position(d.Updates(b.position)),
        previous(d.Writes(b.previous_position)),
        velocity(d.Updates(b.linear_velocity)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const int at = At(body, e), gantry = bodies[body].gantry;
    float3 v = Vector(velocity[at]);
    v.z -= kGravity * kSeconds;
    if (gantry >= 0) v = v + Vector(force[At(gantry, e)]) * (bodies[body].inverse_mass * kSeconds);
    v = Shortened(v, kMaxSpeed);
    previous[at] = position[at];
    position[at] = WithTail(Vector(position[at]) + v * kSeconds, 0);
    velocity[at] = WithTail(v, 0);
  }
};
struct IntegrateAngular : Work {
  const Body* bodies;
  const int* joint_rows;
  const float4* torque;
  float4 *rotation, *previous, *velocity;
  int num_joints;
  IntegrateAngular(Declared& d, const Buffers& b)
      : Work(b),
        bodies(d.Reads(b.bodies)),
        joint_rows(d.Reads(b.joint_rows)),
        torque(d.Reads(b.joint_torque)),
        rotation(d.Updates(b.rotation)),
        previous(d.Writes(b.previous_rotation)),
        velocity(d.Updates(b.angular_velocity)),
        num_joints(b.joints.rows) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const Body& row = bodies[body];
    const int at = At(body, e);
    float3 sum = Vector(0, 0, 0);
    for (int i = row.joint_begin; i < row.joint_end; ++i) {
      const int joint = joint_rows[i];
      sum = joint < num_joints ? sum + Vector(torque[At(joint, e)]) : sum - Vector(torque[At(joint - num_joints, e)]);
    }
    const Quaternion q = rotation[at];
    const float3 spin = Rotated(Conjugate(q), Vector(velocity[at])), turn = Rotated(Conjugate(q), sum);
    const float3 change = row.inverse_inertia * (turn - Cross(spin, row.inertia * spin));
    const float3 v = Shortened(Rotated(q, spin + change * kSeconds), kMaxSpin);
    previous[at] = q;
    rotation[at] = Turned(q, v * kSeconds);
    velocity[at] = WithTail(v, 0);
  }
};
struct VelocityFromPositions : Work {
  const float4 *position, *previous;
  float4* velocity;
  VelocityFromPositions(Declared& d, const Buffers& b)
      : Work(b),
        position(d.Reads(b.position)),
        previous(d.Reads(b.previous_position)),
        velocity(d.Writes(b.linear_velocity)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const int at = At(body, e);
    velocity[at] = WithTail((Vector(position[at]) - Vector(previous[at])) * (1 / kSeconds), 0);
  }
};
struct VelocityFromRotations : Work {
  const float4 *rotation, *previous;
  float4* velocity;
  VelocityFromRotations(Declared& d, const Buffers& b)
      : Work(b),
        rotation(d.Reads(b.rotation)),
        previous(d.Reads(b.previous_rotation)),
        velocity(d.Writes(b.angular_velocity)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const int at = At(body, e);
    const Quaternion turn = Product(rotation[at], Conjugate(previous[at]));
    velocity[at] = WithTail(Shortened(Vector(turn) * ((turn.w < 0 ? -2 : 2) / kSeconds), kMaxSpin), 0);
  }
};

// ---- Corrections of a body, in the order of the tables. Rows of contact groups that were not launched are stale.
struct RowSum {
  const Body* bodies;
  const int* joint_rows;
  const ContactRow* contact_rows;
  const float4 *joint, *contact;
  uint32_t active_groups;
  int environments;

  RowSum(Declared& d, const Buffers& b, const Array<float4>& of_joints, const Array<float4>& of_contacts,
         uint32_t active)
      : bodies(d.Reads(b.bodies)),
        joint_rows(d.Reads(b.joint_rows)),
        contact_rows(d.Reads(b.contact_rows)),
        joint(d.Reads(of_joints)),  // null: joints correct nothing of this kind
        contact(d.Reads(of_contacts)),
        active_groups(active),
        environments(b.environments) {}
  RIGIDSIM_BOTH float3 operator()(int body, int e) const {
    float3 sum = Vector(0, 0, 0);
    for (int i = bodies[body].joint_begin; joint != nullptr && i < bodies[body].joint_end; ++i) {
      sum = sum + Vector(joint[joint_rows[i] * environments + e]);
    }
    for (int i = bodies[body].contact_begin; i < bodies[body].contact_end; ++i) {
      if ((active_groups >> contact_rows[i].group & 1) == 0) continue;
      const float4 row = contact[contact_rows[i].row * environments + e];
      // A contact that does not touch adds nothing, not even the sign of a zero: launched or not, same bits.
      if (row.w != 0) sum = sum + Vector(row);
    }
    return sum * kRelaxation;
  }
};
struct CorrectPositions : Work {
  RowSum sum;
  const float4* previous;
  float4* position;
  CorrectPositions(Declared& d, const Buffers& b, uint32_t active)
      : Work(b),
        sum(d, b, b.joint_linear, b.contact_linear, active),
        previous(d.Reads(b.previous_position)),
        position(d.Updates(b.position)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const int at = At(body, e);
    const float3 from = Vector(previous[at]), moved = Vector(position[at]) - from + sum(body, e);
    position[at] = WithTail(from + Shortened(moved, kMaxSpeed * kSeconds), 0);
  }
};
struct CorrectRotations : Work {
  RowSum sum;
  float4* rotation;
  CorrectRotations(Declared& d, const Buffers& b, uint32_t active)
      : Work(b), sum(d, b, b.joint_angular, b.contact_angular, active), rotation(d.Updates(b.rotation)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    rotation[At(body, e)] = Turned(rotation[At(body, e)], Shortened(sum(body, e), 0.2f));
  }
};
// `joint`, `contact` and `velocity` are all linear or all angular.
struct CorrectVelocities : Work {
  RowSum sum;
  float4* velocity;
  CorrectVelocities(Declared& d, const Buffers& b, const Array<float4>& of_joints, const Array<float4>& of_contacts,
                    const Array<float4>& of_bodies, uint32_t active)
      : Work(b), sum(d, b, of_joints, of_contacts, active), velocity(d.Updates(of_bodies)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const int at = At(body, e);
    velocity[at] = WithTail(Vector(velocity[at]) + sum(body, e), 0);
  }
};

}  // namespace rigidsim
