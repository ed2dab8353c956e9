// A body plan: bodies, joints, shapes and what may touch what; and the builder that turns world coordinates into it.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench/window/rigidsim/vector.h"

namespace rigidsim {

enum class JointKind { kHinge, kUniversal, kBall, kPlanar, kGantry };
enum class ShapeKind { kSphere, kCapsule, kBox };
enum class ContactKind { kSpherePlane, kCapsulePlane, kBoxPlane, kSphereCapsule, kCapsuleCapsule, kSphereBox };

// ---- Rows of the tables that kernels read.
struct Body {
  float mass, inverse_mass;
  float3 inertia, inverse_inertia;  // of the body's own axes, which are the principal ones
  float3 start;                     // world; of the centre of mass
  Quaternion start_rotation;
  float radius;                                            // of a sphere around the centre that holds all shapes
  int gantry;                                              // the joint that drives it along the axes, or -1
  int joint_begin, joint_end, contact_begin, contact_end;  // of Plan::joint_rows, Plan::contact_rows
};
// `a` is the child, `b` the parent or -1, the world.
struct Joint {
  int a, b;
  int first_action;
  float3 anchor_a, anchor_b, axis_a, axis_b, second_a, second_b;  // each in its body's frame
  float lower, upper;  // tangents of half the angle of a hinge; upper: cosine of the largest swing of others
  float gear, damping;
};
struct Shape {
  int body;
  float3 from, to;  // body frame; of a sphere: centre twice; of a box: half its sides in `to`
  float radius;
};
struct Contact {
  int a, b;  // bodies; b is -1 for the plane z = 0
  int shape_a,
      shape_b;  // of the kind's list; of a capsule with the plane: the end, 2 * capsule + {0, 1}; box: the corner
};
struct ContactRow {
  int row, group;
};

// ---- What one kernel of a kind works on: `count` rows from `first` on.
struct JointGroup {
  std::string name;
  JointKind kind;
  int first, count;
};
struct ContactGroup {
  std::string name;
  ContactKind kind;
  int first, count;
  bool IsPair() const { return kind >= ContactKind::kSphereCapsule; }
};

struct Plan {
  std::string name;
  std::vector<Body> bodies;
  std::vector<Joint> joints;
  std::vector<Shape> spheres, capsules, boxes;
  std::vector<Contact> contacts;
  std::vector<JointGroup> joint_groups;
  std::vector<ContactGroup> contact_groups;
  std::vector<int> joint_rows;           // rows of joint corrections, by body
  std::vector<ContactRow> contact_rows;  // rows of contact corrections, by body
  int num_actions = 0;
  bool reaches = false;  // the reward is to bring `reaching` near `target`, not to move on
  int reaching = 0, target = 0;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(const char* name) { plan_.name = name; }

  // ---- Bodies; world coordinates. Each is made of its first shape.
  int Sphere(float3 centre, float radius, float density = 1000) {
    const float mass = density * kPi * 4 / 3 * radius * radius * radius, inertia = 0.4f * mass * radius * radius;
    const int body = AddBody(centre, make_float4(0, 0, 0, 1), mass, Vector(inertia, inertia, inertia));
    AddSphere(body, centre, radius);
    return body;
  }
  int Capsule(float3 from, float3 to, float radius, float density = 1000) {
    const float3 along = to - from;
    const float length = Length(along);
    const float shaft = density * kPi * radius * radius * length,
                ends = density * kPi * 4 / 3 * radius * radius * radius;
    const float axial = shaft * radius * radius / 2 + ends * 0.4f * radius * radius;
    const float across = shaft * (length * length / 12 + radius * radius / 4) +
                         ends * (0.4f * radius * radius + length * length / 4 + 0.375f * length * radius);
    // From z to the direction, the short way.
    const float3 direction = along * (1 / length);
    const Quaternion turn = direction.z < -0.999f
                                ? make_float4(1, 0, 0, 0)
                                : Normalised(make_float4(-direction.y, direction.x, 0, 1 + direction.z));
    const int body = AddBody((from + to) * 0.5f, turn, shaft + ends, Vector(across, across, axial));
    AddCapsule(body, from, to, radius);
    return body;
  }
  int Box(float3 centre, float3 half, float density = 1000) {
    const float mass = density * 8 * half.x * half.y * half.z, x = half.x * half.x, y = half.y * half.y,
                z = half.z * half.z;
    const int body = AddBody(centre, make_float4(0, 0, 0, 1), mass,
                             Vector((y + z) * mass / 3, (x + z) * mass / 3, (x + y) * mass / 3));
    AddShape(&plan_.boxes, {body, Vector(0, 0, 0), half, 0}, Length(half));
    return body;
  }

  // ---- More shapes of a body; they add no mass.
  void AddSphere(int body, float3 centre, float radius) {
    const float3 c = ToBody(body, centre);
    AddShape(&plan_.spheres, {body, c, c, radius}, Length(c) + radius);
  }
  void AddCapsule(int body, float3 from, float3 to, float radius) {
    const float3 f = ToBody(body, from), t = ToBody(body, to);
    AddShape(&plan_.capsules, {body, f, t, radius}, Larger(Length(f), Length(t)) + radius);
  }

  // ---- Joints. A group is launched as one kernel, so its joints are of one kind.
  void BeginJoints(const char* name, JointKind kind) {
    plan_.joint_groups.push_back({name, kind, static_cast<int>(plan_.joints.size()), 0});
  }
  // Angles in degrees from the start; `axis` and `second` at right angles, world. `upper` is the largest swing of
  // universal and ball joints.
  void AddJoint(int child, int parent, float3 anchor, float3 axis, float3 second, double lower, double upper,
                float gear) {
    JointGroup& group = plan_.joint_groups.back();
    const bool is_hinge = group.kind == JointKind::kHinge;
    Joint joint{};
    joint.a = child;
    joint.b = parent;
    joint.first_action = plan_.num_actions;
    joint.anchor_a = ToBody(child, anchor);
    joint.anchor_b = ToBody(parent, anchor);
    joint.axis_a = DirectionToBody(child, axis);
    joint.axis_b = DirectionToBody(parent, axis);
    joint.second_a = DirectionToBody(child, second);
    joint.second_b = DirectionToBody(parent, second);
    joint.lower = static_cast<float>(Sine(lower / 2) / Sine(lower / 2 + 90));
    joint.upper = static_cast<float>(is_hinge ? Sine(upper / 2) / Sine(upper / 2 + 90) : Sine(upper + 90));
    joint.gear = gear;
    joint.damping = group.kind == JointKind::kPlanar || group.kind == JointKind::kGantry ? 0 : 8;
    plan_.joints.push_back(joint);
    plan_.num_actions += NumActions(group.kind);
    ++group.count;
    if (group.kind == JointKind::kGantry) plan_.bodies[static_cast<size_t>(child)].gantry = Size(plan_.joints) - 1;
  }

  // ---- Contacts, by shapes; a group is launched as one kernel.
  void WithPlane(const char* name, ContactKind kind, const std::vector<int>& shapes) {
    const int points = kind == ContactKind::kBoxPlane ? 8 : kind == ContactKind::kCapsulePlane ? 2 : 1;
    const std::vector<Shape>& list = kind == ContactKind::kBoxPlane       ? plan_.boxes
                                     : kind == ContactKind::kCapsulePlane ? plan_.capsules
                                                                          : plan_.spheres;
    plan_.contact_groups.push_back({name, kind, Size(plan_.contacts), Size(shapes) * points});
    for (const int shape : shapes) {
      const int body = list[static_cast<size_t>(shape)].body;
      for (int point = 0; point < points; ++point) plan_.contacts.push_back({body, -1, shape * points + point, 0});
    }
  }
  void Pairs(const char* name, ContactKind kind, const std::vector<std::pair<int, int>>& shapes) {
    const std::vector<Shape>& first = kind == ContactKind::kCapsuleCapsule ? plan_.capsules : plan_.spheres;
    const std::vector<Shape>& second = kind == ContactKind::kSphereBox ? plan_.boxes : plan_.capsules;
    plan_.contact_groups.push_back({name, kind, Size(plan_.contacts), Size(shapes)});
    for (const auto& [a, b] : shapes) {
      plan_.contacts.push_back({first[static_cast<size_t>(a)].body, second[static_cast<size_t>(b)].body, a, b});
    }
  }

  void Reaches(int reaching, int target) {
    plan_.reaches = true;
    plan_.reaching = reaching;
    plan_.target = target;
  }

  // Corrections lie in two halves: of all a bodies, then of all b bodies.
  Plan Build() {
    const int num_joints = Size(plan_.joints), num_contacts = Size(plan_.contacts);
    for (int body = 0; body < Size(plan_.bodies); ++body) {
      Body& row = plan_.bodies[static_cast<size_t>(body)];
      row.joint_begin = Size(plan_.joint_rows);
      for (int j = 0; j < num_joints; ++j) {
        if (plan_.joints[static_cast<size_t>(j)].a == body) plan_.joint_rows.push_back(j);
        if (plan_.joints[static_cast<size_t>(j)].b == body) plan_.joint_rows.push_back(num_joints + j);
      }
      row.joint_end = Size(plan_.joint_rows);
      row.contact_begin = Size(plan_.contact_rows);
      for (int g = 0; g < Size(plan_.contact_groups); ++g) {
        const ContactGroup& group = plan_.contact_groups[static_cast<size_t>(g)];
        for (int c = group.first; c < group.first + group.count; ++c) {
          if (plan_.contacts[static_cast<size_t>(c)].a == body) plan_.contact_rows.push_back({c, g});
          if (plan_.contacts[static_cast<size_t>(c)].b == body) plan_.contact_rows.push_back({num_contacts + c, g});
        }
      }
      row.contact_end = Size(plan_.contact_rows);
    }
    return plan_;
  }

  static int NumActions(JointKind kind) {
    return kind == JointKind::kHinge ? 1 : kind == JointKind::kUniversal ? 2 : kind == JointKind::kPlanar ? 0 : 3;
  }

 private:
  static constexpr float kPi = 3.14159265f;

  template <class T>
  static int Size(const std::vector<T>& list) {
    return static_cast<int>(list.size());
  }
  // Not the library's: its last bit may differ from machine to machine, and a table's bits count.
  static double Sine(double degrees) {
    const double x = degrees * 3.14159265358979323846 / 180;
    double term = x, sum = x;
    for (int k = 3; k < 40; k += 2) sum += term *= -x * x / (k * (k - 1));
    return sum;
  }
  int AddBody(float3 centre, Quaternion rotation, float mass, float3 inertia) {
    Body body{};
    body.mass = mass;
    body.inverse_mass = 1 / mass;
    body.inertia = inertia;
    body.inverse_inertia = Vector(1 / inertia.x, 1 / inertia.y, 1 / inertia.z);
    body.start = centre;
    body.start_rotation = rotation;
    body.gantry = -1;
    plan_.bodies.push_back(body);
    return Size(plan_.bodies) - 1;
  }
  void AddShape(std::vector<Shape>* list, Shape shape, float reach) {
    Body& body = plan_.bodies[static_cast<size_t>(shape.body)];
    body.radius = Larger(body.radius, reach);
    list->push_back(shape);
  }
  float3 DirectionToBody(int body, float3 direction) const {
    if (body < 0) return direction;
    return Rotated(Conjugate(plan_.bodies[static_cast<size_t>(body)].start_rotation), direction);
  }
  float3 ToBody(int body, float3 point) const {
    return body < 0 ? point : DirectionToBody(body, point - plan_.bodies[static_cast<size_t>(body)].start);
  }

  Plan plan_;
};

}  // namespace rigidsim
