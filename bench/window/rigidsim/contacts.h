// Work on contacts: shapes in the world, whether they touch, what has to be corrected, friction, and which groups of
// contacts are near enough that they have to be looked at in the next steps.
#pragma once

#include "bench/window/rigidsim/bodies.h"

namespace rigidsim {

constexpr float kFriction = 0.8f;

// ---- Shapes: spheres, ends of capsules, corners of boxes, each with a radius.
template <ShapeKind kKind>
struct Place : Work {
  const Shape* shapes;
  const float4 *position, *rotation;
  float4* points;
  Place(Declared& d, const Buffers& b, const Array<Shape>& table, const Array<float4>& to)
      : Work(b),
        shapes(d.Reads(table)),
        position(d.Reads(b.position)),
        rotation(d.Reads(b.rotation)),
        points(d.Writes(to)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Shape& shape = shapes[kKind == ShapeKind::kBox ? row / 8 : kKind == ShapeKind::kCapsule ? row / 2 : row];
    float3 local = shape.from;
    if constexpr (kKind == ShapeKind::kCapsule) local = row % 2 == 0 ? shape.from : shape.to;
    if constexpr (kKind == ShapeKind::kBox) {
      local = shape.to * Vector(row & 1 ? 1 : -1, row & 2 ? 1 : -1, row & 4 ? 1 : -1);
    }
    const int at = At(shape.body, e);
    points[At(row, e)] = WithTail(Vector(position[at]) + Rotated(rotation[at], local), shape.radius);
  }
};

struct ContactWork : Work {
  const Contact* contacts;
  int first;
  ContactWork(Declared& d, const Buffers& b, const ContactGroup& g)
      : Work(b), contacts(d.Reads(b.contacts, g.first, g.count)), first(g.first) {}
};

// ---- Do they touch? The point, how deep, and the normal towards a.
struct CollideWork : ContactWork {
  float4 *point, *normal;
  CollideWork(Declared& d, const Buffers& b, const ContactGroup& g)
      : ContactWork(d, b, g),
        point(d.Writes(b.contact_point, g.first, g.count)),
        normal(d.Writes(b.contact_normal, g.first, g.count)) {}
  // Two balls; those of capsules are the points of their axes that are next to each other.
  RIGIDSIM_BOTH void Store(int at, float3 a, float radius_a, float3 b, float radius_b) const {
    const float3 apart = a - b;
    const float distance = Length(apart);
    const float3 n = distance > 1e-6f ? apart * (1 / distance) : Vector(0, 0, 1);
    point[at] = WithTail(b + n * radius_b, radius_a + radius_b - distance);
    normal[at] = WithTail(n, 0);
  }
};
template <ShapeKind kKind>
struct CollidePlane : CollideWork {
  const float4* points;
  CollidePlane(Declared& d, const Buffers& b, const ContactGroup& g, const Array<float4>& of_shapes)
      : CollideWork(d, b, g), points(d.Reads(of_shapes)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const float4 p = points[At(contacts[first + row].shape_a, e)];
    const int at = At(first + row, e);
    point[at] = make_float4(p.x, p.y, 0, p.w - p.z);
    normal[at] = make_float4(0, 0, 1, 0);
  }
};
struct CollideSphereCapsule : CollideWork {
  const float4 *centres, *ends;
  CollideSphereCapsule(Declared& d, const Buffers& b, const ContactGroup& g)
      : CollideWork(d, b, g), centres(d.Reads(b.sphere_centres)), ends(d.Reads(b.capsule_ends)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Contact& c = contacts[first + row];
    const float4 sphere = centres[At(c.shape_a, e)], end = ends[At(2 * c.shape_b, e)];
    const float3 from = Vector(end), along = Vector(ends[At(2 * c.shape_b + 1, e)]) - from;
    const float t = Clamp(Dot(Vector(sphere) - from, along) / Dot(along, along), 0, 1);
    Store(At(first + row, e), Vector(sphere), sphere.w, from + along * t, end.w);
  }
};
struct CollideCapsules : CollideWork {
  const float4* ends;
  CollideCapsules(Declared& d, const Buffers& b, const ContactGroup& g)
      : CollideWork(d, b, g), ends(d.Reads(b.capsule_ends)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Contact& c = contacts[first + row];
    const float4 end_a = ends[At(2 * c.shape_a, e)], end_b = ends[At(2 * c.shape_b, e)];
    const float3 from_a = Vector(end_a), along_a = Vector(ends[At(2 * c.shape_a + 1, e)]) - from_a;
    const float3 from_b = Vector(end_b), along_b = Vector(ends[At(2 * c.shape_b + 1, e)]) - from_b;
    const float3 between = from_a - from_b;
    const float aa = Dot(along_a, along_a), bb = Dot(along_b, along_b), ab = Dot(along_a, along_b);
    const float a = Dot(along_a, between), b = Dot(along_b, between), area = aa * bb - ab * ab;
    float s = area > 1e-9f ? Clamp((ab * b - a * bb) / area, 0, 1) : 0.5f;  // parallel: the middle
    const float t = Clamp((ab * s + b) / bb, 0, 1);
    s = Clamp((ab * t - a) / aa, 0, 1);
    Store(At(first + row, e), from_a + along_a * s, end_a.w, from_b + along_b * t, end_b.w);
  }
};
struct CollideSphereBox : CollideWork {
  const float4 *centres, *position, *rotation;
  const Shape* boxes;
  CollideSphereBox(Declared& d, const Buffers& b, const ContactGroup& g)
      : CollideWork(d, b, g),
        centres(d.Reads(b.sphere_centres)),
        position(d.Reads(b.position)),
        rotation(d.Reads(b.rotation)),
        boxes(d.Reads(b.boxes)) {}
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const Contact& c = contacts[first + row];
    const float4 sphere = centres[At(c.shape_a, e)];
    const Quaternion q = rotation[At(c.b, e)];
    const float3 half = boxes[c.shape_b].to, middle = Vector(position[At(c.b, e)]);
    const float3 p = Rotated(Conjugate(q), Vector(sphere) - middle);
    const float3 nearest =
        Vector(Clamp(p.x, -half.x, half.x), Clamp(p.y, -half.y, half.y), Clamp(p.z, -half.z, half.z));
    Store(At(first + row, e), Vector(sphere), sphere.w, middle + Rotated(q, nearest), 0);
  }
};

// Before the step's contacts: of groups that are not launched nothing else writes.
struct ClearImpulses : Work {
  float* impulse;
  ClearImpulses(Declared& d, const Buffers& b) : Work(b), impulse(d.Writes(b.contact_impulse)) {}
  RIGIDSIM_BOTH void operator()(int contact, int e) const { impulse[At(contact, e)] = 0; }
};

// ---- Corrections. Only pairs push a second body.
template <bool kIsPair>
struct PushWork : ContactWork {
  BodyReader body;
  const float4 *point, *normal;
  float4 *linear, *angular;
  int num_contacts;
  PushWork(Declared& d, const Buffers& b, const ContactGroup& g)
      : ContactWork(d, b, g),
        body(d, b),
        point(d.Reads(b.contact_point, g.first, g.count)),
        normal(d.Reads(b.contact_normal, g.first, g.count)),
        linear(d.Writes(b.contact_linear, g.first, g.count)),
        angular(d.Writes(b.contact_angular, g.first, g.count)),
        num_contacts(b.contacts.rows) {
    if (!kIsPair) return;
    d.Writes(b.contact_linear, num_contacts + g.first, g.count);
    d.Writes(b.contact_angular, num_contacts + g.first, g.count);
  }
  RIGIDSIM_BOTH void Store(int row, int e, const Push& push, float touches) const {
    const int at = this->At(first + row, e), at_b = this->At(num_contacts + first + row, e);
    linear[at] = WithTail(push.linear_a, touches), angular[at] = WithTail(push.angular_a, touches);
    if (kIsPair) linear[at_b] = WithTail(push.linear_b, touches), angular[at_b] = WithTail(push.angular_b, touches);
  }
};
// Apart, and back along the plane where friction holds.
template <bool kIsPair>
struct Separate : PushWork<kIsPair> {
  const float4 *old_position, *old_rotation;
  float* impulse;
  Separate(Declared& d, const Buffers& b, const ContactGroup& g)
      : PushWork<kIsPair>(d, b, g),
        old_position(d.Reads(b.previous_position)),
        old_rotation(d.Reads(b.previous_rotation)),
        impulse(d.Writes(b.contact_impulse, g.first, g.count)) {}
  // How far the body's point at `offset` has come in this substep.
  RIGIDSIM_BOTH float3 Travel(const RigidBody& now, int index, float3 offset, int e) const {
    if (index < 0) return Vector(0, 0, 0);
    const int at = this->At(index, e);
    const float3 before = Rotated(old_rotation[at], Rotated(Conjugate(now.rotation), offset));
    return now.position + offset - Vector(old_position[at]) - before;
  }
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const int at = this->At(this->first + row, e);
    const Contact& c = this->contacts[this->first + row];
    const float depth = this->point[at].w;
    Push push;
    float normal_impulse = 0;
    if (depth > 0) {
      const RigidBody a = this->body(c.a, e), b = this->body(c.b, e);
      const float3 n = Vector(this->normal[at]), p = Vector(this->point[at]);
      const float3 at_a = p - a.position, at_b = p - b.position;
      push = PushPoints(a, b, at_a, at_b, n * depth, &normal_impulse);
      const float3 slip = Travel(a, c.a, at_a, e) - Travel(b, c.b, at_b, e), along = slip - n * Dot(slip, n);
      float friction_impulse = 0;
      const Push hold = PushPoints(a, b, at_a, at_b, -along, &friction_impulse);
      if (friction_impulse < kFriction * normal_impulse) push.Add(hold);
    }
    impulse[at] = normal_impulse;
    this->Store(row, e, push, depth > 0 ? 1 : 0);
  }
};
// Nothing bounces; what slips is slowed as far as the normal impulse allows. Velocities.
template <bool kIsPair>
struct Rub : PushWork<kIsPair> {
  const float4 *linear_velocity, *angular_velocity;
  const float* impulse;
  Rub(Declared& d, const Buffers& b, const ContactGroup& g)
      : PushWork<kIsPair>(d, b, g),
        linear_velocity(d.Reads(b.linear_velocity)),
        angular_velocity(d.Reads(b.angular_velocity)),
        impulse(d.Reads(b.contact_impulse, g.first, g.count)) {}
  RIGIDSIM_BOTH float3 VelocityAt(int index, float3 offset, int e) const {
    if (index < 0) return Vector(0, 0, 0);
    const int at = this->At(index, e);
    return Vector(linear_velocity[at]) + Cross(Vector(angular_velocity[at]), offset);
  }
  RIGIDSIM_BOTH void operator()(int row, int e) const {
    const int at = this->At(this->first + row, e);
    const Contact& c = this->contacts[this->first + row];
    Push push;
    if (impulse[at] > 0) {
      const RigidBody a = this->body(c.a, e), b = this->body(c.b, e);
      const float3 n = Vector(this->normal[at]), p = Vector(this->point[at]);
      const float3 at_a = p - a.position, at_b = p - b.position;
      const float3 v = VelocityAt(c.a, at_a, e) - VelocityAt(c.b, at_b, e), along = v - n * Dot(v, n);
      const float slip = Length(along);
      const float most = kFriction * impulse[at] / kSeconds * (a.inverse_mass + b.inverse_mass);
      float3 change = n * -Dot(v, n);
      if (slip > 1e-6f) change = change - along * (Smaller(most, slip) / slip);
      float unused;
      push = PushPoints(a, b, at_a, at_b, change, &unused);
    }
    this->Store(row, e, push, impulse[at] > 0 ? 1 : 0);
  }
};

// ---- Could any contact of the group touch before the host hears of the next look? Exact, for kReach bounds all
// travel.
struct Near : ContactWork {
  const Body* bodies;
  const float4* position;
  int* near;
  int count, group;
  Near(Declared& d, const Buffers& b, const ContactGroup& g, int index)
      : ContactWork(d, b, g),
        bodies(d.Reads(b.bodies)),
        position(d.Reads(b.position)),
        near(d.Writes(b.near, index, 1)),
        count(g.count),
        group(index) {}
  RIGIDSIM_BOTH void operator()(int, int e) const {
    int is_near = 0;
    for (int i = 0; i < count; ++i) {
      const Contact& c = contacts[first + i];
      const float3 a = Vector(position[At(c.a, e)]);
      const float reach = bodies[c.a].radius + kReach;
      if (c.b < 0) {
        is_near |= a.z < reach;
      } else {
        const float3 apart = a - Vector(position[At(c.b, e)]);
        const float both = reach + bodies[c.b].radius + kReach;
        is_near |= Dot(apart, apart) < both * both;
      }
    }
    near[At(group, e)] = is_near;
  }
};
// For the host: a group's environments in kNearChunks words.
struct SummariseNear : Work {
  const int* near;
  int* chunks;
  int of_environments;
  SummariseNear(Declared& d, const Buffers& b)
      : Work(b), near(d.Reads(b.near)), chunks(d.Writes(b.near_chunks)), of_environments(b.environments) {
    environments = kNearChunks;
  }
  RIGIDSIM_BOTH void operator()(int group, int chunk) const {
    int any = 0;
    for (int e = chunk; e < of_environments; e += kNearChunks) any |= near[group * of_environments + e];
    chunks[group * kNearChunks + chunk] = any;
  }
};

}  // namespace rigidsim
