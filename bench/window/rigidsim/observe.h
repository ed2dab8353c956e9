// What a learner reads after a step: observations and reward; and the energy, for whoever doubts the physics.
#pragma once

#include "bench/window/rigidsim/bodies.h"

namespace rigidsim {

// Rows of the observations: 3 per body, 3 per body, 2 per joint, 1 per body.
struct ObservePoses : Work {
  const float4* position;
  float* out;
  ObservePoses(Declared& d, const Buffers& b)
      : Work(b), position(d.Reads(b.position)), out(d.Writes(b.observations, 0, 3 * b.bodies.rows)) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const float3 root = Vector(position[e]), p = Vector(position[At(body, e)]);
    out[At(3 * body, e)] = body == 0 ? p.x : p.x - root.x;
    out[At(3 * body + 1, e)] = body == 0 ? p.y : p.y - root.y;
    out[At(3 * body + 2, e)] = p.z;
  }
};
struct ObserveVelocities : Work {
  const float4* velocity;
  float* out;
  int first;
  ObserveVelocities(Declared& d, const Buffers& b)
      : Work(b),
        velocity(d.Reads(b.linear_velocity)),
        out(d.Writes(b.observations, 3 * b.bodies.rows, 3 * b.bodies.rows)),
        first(3 * b.bodies.rows) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    const float4 v = velocity[At(body, e)];
    out[At(first + 3 * body, e)] = v.x;
    out[At(first + 3 * body + 1, e)] = v.y;
    out[At(first + 3 * body + 2, e)] = v.z;
  }
};
struct ObserveJoints : Work {
  const Joint* joints;
  const float4 *rotation, *velocity;
  float* out;
  int first, first_row;
  ObserveJoints(Declared& d, const Buffers& b, const JointGroup& g)
      : Work(b),
        joints(d.Reads(b.joints, g.first, g.count)),
        rotation(d.Reads(b.rotation)),
        velocity(d.Reads(b.angular_velocity)),
        out(d.Writes(b.observations, 6 * b.bodies.rows + 2 * g.first, 2 * g.count)),
        first(g.first),
        first_row(6 * b.bodies.rows + 2 * g.first) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Joint& j = joints[first + row];
    const Quaternion b = j.b < 0 ? make_float4(0, 0, 0, 1) : rotation[At(j.b, e)];
    const float3 axis = Rotated(b, j.axis_b), spin_b = j.b < 0 ? Vector(0, 0, 0) : Vector(velocity[At(j.b, e)]);
    const float3 side_a = Rotated(rotation[At(j.a, e)], j.second_a), side_b = Rotated(b, j.second_b);
    out[At(first_row + 2 * row, e)] = Dot(Cross(side_b, side_a), axis);
    out[At(first_row + 2 * row + 1, e)] = Dot(Vector(velocity[At(j.a, e)]) - spin_b, axis);
  }
};
struct ObserveContacts : Work {
  const Body* bodies;
  const ContactRow* rows;
  const float* impulse;  // zero of what was not launched
  float* out;
  int first, num_contacts;
  ObserveContacts(Declared& d, const Buffers& b)
      : Work(b),
        bodies(d.Reads(b.bodies)),
        rows(d.Reads(b.contact_rows)),
        impulse(d.Reads(b.contact_impulse)),
        out(d.Writes(b.observations, 6 * b.bodies.rows + 2 * b.joints.rows, b.bodies.rows)),
        first(6 * b.bodies.rows + 2 * b.joints.rows),
        num_contacts(b.contacts.rows) {}
  RIGIDSIM_BOTH void operator()(int body, int e) const {
    float sum = 0;
    for (int i = bodies[body].contact_begin; i < bodies[body].contact_end; ++i) {
      const int contact = rows[i].row < num_contacts ? rows[i].row : rows[i].row - num_contacts;
      sum += impulse[At(contact, e)];
    }
    out[At(first + body, e)] = sum;
  }
};

// ---- The reward's terms: getting on (or the distance to what is to be grasped), being upright, effort.
struct ForwardTerm : Work {
  const float4* velocity;
  float* terms;
  ForwardTerm(Declared& d, const Buffers& b)
      : Work(b), velocity(d.Reads(b.linear_velocity, 0, 1)), terms(d.Writes(b.reward_terms, 0, 1)) {}
  RIGIDSIM_BOTH void operator()(int, int e) const { terms[e] = velocity[e].x; }
};
struct ReachTerm : Work {
  const float4* position;
  float* terms;
  int reaching, target;
  ReachTerm(Declared& d, const Buffers& b, int from, int to)
      : Work(b), position(d.Reads(b.position)), terms(d.Writes(b.reward_terms, 0, 1)), reaching(from), target(to) {}
  RIGIDSIM_BOTH void operator()(int, int e) const {
    terms[e] = -Length(Vector(position[At(reaching, e)]) - Vector(position[At(target, e)]));
  }
};
struct UprightTerm : Work {
  const Body* bodies;
  const float4 *position, *rotation;
  float* terms;
  UprightTerm(Declared& d, const Buffers& b)
      : Work(b),
        bodies(d.Reads(b.bodies, 0, 1)),
        position(d.Reads(b.position, 0, 1)),
        rotation(d.Reads(b.rotation, 0, 1)),
        terms(d.Writes(b.reward_terms, 1, 1)) {}
  RIGIDSIM_BOTH void operator()(int, int e) const {
    const float3 up = Rotated(Product(rotation[e], Conjugate(bodies[0].start_rotation)), Vector(0, 0, 1));
    terms[At(1, e)] = Larger(0, up.z) * Smaller(1, position[e].z / bodies[0].start.z);
  }
};
struct EffortTerm : Work {
  const float* action;
  float* terms;
  int num_actions;
  EffortTerm(Declared& d, const Buffers& b)
      : Work(b), action(d.Reads(b.action)), terms(d.Writes(b.reward_terms, 2, 1)), num_actions(b.action.rows) {}
  RIGIDSIM_BOTH void operator()(int, int e) const {
    float sum = 0;
    for (int i = 0; i < num_actions; ++i) sum += action[At(i, e)] * action[At(i, e)];
    terms[At(2, e)] = sum * -0.01f;
  }
};
struct SumReward : Work {
  const float* terms;
  float *reward, *returns;
  SumReward(Declared& d, const Buffers& b)
      : Work(b), terms(d.Reads(b.reward_terms)), reward(d.Writes(b.reward)), returns(d.Updates(b.returns)) {}
  RIGIDSIM_BOTH void operator()(int, int e) const {
    reward[e] = terms[e] + terms[At(1, e)] + terms[At(2, e)];
    returns[e] += reward[e];
  }
};
struct Energy : Work {
  const Body* bodies;
  const float4 *position, *rotation, *linear, *angular;
  float* energy;
  int num_bodies;
  Energy(Declared& d, const Buffers& b)
      : Work(b),
        bodies(d.Reads(b.bodies)),
        position(d.Reads(b.position)),
        rotation(d.Reads(b.rotation)),
        linear(d.Reads(b.linear_velocity)),
        angular(d.Reads(b.angular_velocity)),
        energy(d.Writes(b.energy)),
        num_bodies(b.bodies.rows) {}
  RIGIDSIM_BOTH void operator()(int, int e) const {
    float sum = 0;
    for (int body = 0; body < num_bodies; ++body) {
      const int at = At(body, e);
      const float3 v = Vector(linear[at]), spin = Rotated(Conjugate(rotation[at]), Vector(angular[at]));
      sum += bodies[body].mass * (0.5f * Dot(v, v) + kGravity * position[at].z);
      sum += 0.5f * Dot(spin, bodies[body].inertia * spin);
    }
    energy[e] = sum;
  }
};

}  // namespace rigidsim
