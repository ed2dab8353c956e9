// The five body plans, after those of Brax: bodies, joints, actuators and contacts of the same kinds and numbers.
// Joints are grouped by kind and depth, as Brax maps over levels of its tree; contacts by the kinds of their shapes and
// by limb.
#pragma once

#include "bench/window/rigidsim/plan.h"

namespace rigidsim {
namespace plans {

inline const float3 kX = Vector(1, 0, 0), kY = Vector(0, 1, 0), kZ = Vector(0, 0, 1);

// A torso on four legs of two parts: 9 bodies, 8 hinges.
inline Plan Ant() {
  PlanBuilder b("ant");
  const int torso = b.Sphere(Vector(0, 0, 0.62f), 0.25f);
  const float x[4] = {1, -1, -1, 1}, y[4] = {1, 1, -1, -1};
  int thigh[4], shin[4];
  for (int i = 0; i < 4; ++i) {
    thigh[i] = b.Capsule(Vector(0.2f * x[i], 0.2f * y[i], 0.62f), Vector(0.42f * x[i], 0.42f * y[i], 0.62f), 0.08f);
  }
  for (int i = 0; i < 4; ++i) {
    shin[i] = b.Capsule(Vector(0.42f * x[i], 0.42f * y[i], 0.62f), Vector(0.62f * x[i], 0.62f * y[i], 0.12f), 0.08f);
  }
  b.BeginJoints("hips", JointKind::kHinge);
  for (int i = 0; i < 4; ++i) {
    b.AddJoint(thigh[i], torso, Vector(0.2f * x[i], 0.2f * y[i], 0.62f), kZ, kX, -40, 40, 800);
  }
  b.BeginJoints("knees", JointKind::kHinge);
  for (int i = 0; i < 4; ++i) {
    const float3 axis = Vector(-0.70710678f * y[i], 0.70710678f * x[i], 0);
    b.AddJoint(shin[i], thigh[i], Vector(0.42f * x[i], 0.42f * y[i], 0.62f), axis, kZ, -50, 50, 800);
  }
  b.WithPlane("shins", ContactKind::kCapsulePlane, {4, 5, 6, 7});
  b.WithPlane("torso", ContactKind::kSpherePlane, {0});
  b.WithPlane("thighs", ContactKind::kCapsulePlane, {0, 1, 2, 3});
  b.Pairs("shin_shin", ContactKind::kCapsuleCapsule, {{4, 5}, {5, 6}, {6, 7}, {7, 4}});
  return b.Build();
}

// A hand with four fingers of three parts on a gantry above a ball and a cube: 15 bodies, 19 actions.
inline Plan Grasp() {
  PlanBuilder b("grasp");
  const int palm = b.Box(Vector(0, 0, 0.56f), Vector(0.12f, 0.12f, 0.03f));
  const float x[4] = {1, 0, -1, 0}, y[4] = {0, 1, 0, -1};
  const float radius[4] = {0.11f, 0.15f, 0.16f, 0.13f}, height[4] = {0.52f, 0.38f, 0.27f, 0.17f};
  auto knuckle = [&](int finger, int k) { return Vector(radius[k] * x[finger], radius[k] * y[finger], height[k]); };
  int part[3][4];
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < 4; ++i) part[k][i] = b.Capsule(knuckle(i, k), knuckle(i, k + 1), 0.025f);
  }
  const int ball = b.Sphere(Vector(0.02f, 0, 0.13f), 0.09f, 300);
  b.Box(Vector(0.32f, 0.05f, 0.1f), Vector(0.06f, 0.06f, 0.06f), 300);
  b.BeginJoints("gantry", JointKind::kGantry);
  b.AddJoint(palm, -1, Vector(0, 0, 0.56f), kZ, kX, 0, 0, 4000);
  auto add = [&](int k, int i) {
    b.AddJoint(part[k][i], k == 0 ? palm : part[k - 1][i], knuckle(i, k), Vector(-y[i], x[i], 0), kZ, -50, 50,
               k == 0 ? 6 : 3);
  };
  b.BeginJoints("knuckles", JointKind::kUniversal);
  for (int i = 0; i < 4; ++i) add(0, i);
  b.BeginJoints("middle_joints", JointKind::kHinge);
  for (int i = 0; i < 4; ++i) add(1, i);
  b.BeginJoints("tip_joints", JointKind::kHinge);
  for (int i = 0; i < 4; ++i) add(2, i);
  b.WithPlane("ball", ContactKind::kSpherePlane, {0});
  b.WithPlane("cube", ContactKind::kBoxPlane, {1});
  b.WithPlane("tips", ContactKind::kCapsulePlane, {8, 9, 10, 11});
  b.Pairs("ball_tips", ContactKind::kSphereCapsule, {{0, 8}, {0, 9}, {0, 10}, {0, 11}});
  b.Pairs("ball_middles", ContactKind::kSphereCapsule, {{0, 4}, {0, 5}, {0, 6}, {0, 7}});
  b.Pairs("ball_palm_cube", ContactKind::kSphereBox, {{0, 0}, {0, 1}});
  b.Pairs("tip_tip", ContactKind::kCapsuleCapsule, {{8, 9}, {9, 10}, {10, 11}, {11, 8}, {8, 10}, {9, 11}});
  b.Reaches(ball, palm);
  return b.Build();
}

// 11 bodies, 17 actions: hinges, universal joints, balls.
inline Plan Humanoid() {
  PlanBuilder b("humanoid");
  const int torso = b.Capsule(Vector(0, -0.07f, 1.4f), Vector(0, 0.07f, 1.4f), 0.07f);
  const int waist = b.Capsule(Vector(0, -0.06f, 1.16f), Vector(0, 0.06f, 1.16f), 0.06f);
  const int pelvis = b.Capsule(Vector(0, -0.07f, 1.0f), Vector(0, 0.07f, 1.0f), 0.09f);
  int thigh[2], shin[2], upper_arm[2], forearm[2];
  const float side[2] = {-1, 1};
  for (int i = 0; i < 2; ++i)
    thigh[i] = b.Capsule(Vector(0, 0.1f * side[i], 0.96f), Vector(0, 0.1f * side[i], 0.62f), 0.06f);
  for (int i = 0; i < 2; ++i)
    shin[i] = b.Capsule(Vector(0, 0.1f * side[i], 0.6f), Vector(0, 0.1f * side[i], 0.29f), 0.05f);
  auto shoulder = [&](int i) { return Vector(0, 0.18f * side[i], 1.44f); };
  auto elbow = [&](int i) { return Vector(0.1f, 0.3f * side[i], 1.2f); };
  auto hand = [&](int i) { return Vector(0.3f, 0.24f * side[i], 1.28f); };
  for (int i = 0; i < 2; ++i) upper_arm[i] = b.Capsule(shoulder(i), elbow(i), 0.04f);
  for (int i = 0; i < 2; ++i) forearm[i] = b.Capsule(elbow(i), hand(i), 0.035f);
  for (int i = 0; i < 2; ++i) b.AddSphere(shin[i], Vector(0.03f, 0.1f * side[i], 0.115f), 0.075f);
  for (int i = 0; i < 2; ++i) b.AddSphere(forearm[i], hand(i), 0.045f);
  b.AddSphere(torso, Vector(0, 0, 1.6f), 0.09f);
  b.BeginJoints("chest", JointKind::kUniversal);
  b.AddJoint(waist, torso, Vector(0, 0, 1.26f), kZ, kY, 0, 45, 300);
  b.BeginJoints("abdomen", JointKind::kHinge);
  b.AddJoint(pelvis, waist, Vector(0, 0, 1.08f), kX, kZ, -35, 35, 300);
  b.BeginJoints("hips", JointKind::kBall);
  for (int i = 0; i < 2; ++i) b.AddJoint(thigh[i], pelvis, Vector(0, 0.1f * side[i], 0.96f), kZ, kX, 0, 50, 250);
  b.BeginJoints("knees", JointKind::kHinge);
  for (int i = 0; i < 2; ++i) b.AddJoint(shin[i], thigh[i], Vector(0, 0.1f * side[i], 0.61f), kY, kX, -2, 120, 150);
  b.BeginJoints("shoulders", JointKind::kUniversal);
  for (int i = 0; i < 2; ++i) b.AddJoint(upper_arm[i], torso, shoulder(i), kY, kX, 0, 70, 40);
  b.BeginJoints("elbows", JointKind::kHinge);
  for (int i = 0; i < 2; ++i) b.AddJoint(forearm[i], upper_arm[i], elbow(i), kY, kX, -60, 60, 20);
  b.WithPlane("feet", ContactKind::kSpherePlane, {0, 1});
  b.WithPlane("head_hands", ContactKind::kSpherePlane, {2, 3, 4});
  b.WithPlane("shins", ContactKind::kCapsulePlane, {5, 6});
  b.WithPlane("thighs", ContactKind::kCapsulePlane, {3, 4});
  b.WithPlane("trunk", ContactKind::kCapsulePlane, {0, 1, 2});
  b.WithPlane("arms", ContactKind::kCapsulePlane, {7, 8, 9, 10});
  b.Pairs("hand_leg", ContactKind::kSphereCapsule, {{2, 3}, {3, 4}, {2, 5}, {3, 6}});
  b.Pairs("arm_leg", ContactKind::kCapsuleCapsule, {{9, 3}, {10, 4}});
  b.Pairs("leg_leg", ContactKind::kCapsuleCapsule, {{3, 4}, {5, 6}, {3, 6}, {4, 5}});
  return b.Build();
}

// 7 bodies in a plane, 6 hinges.
inline Plan Cheetah() {
  PlanBuilder b("cheetah");
  const int torso = b.Capsule(Vector(-0.5f, 0, 0.72f), Vector(0.5f, 0, 0.72f), 0.05f);
  const float3 back[4] = {Vector(-0.5f, 0, 0.72f), Vector(-0.34f, 0, 0.48f), Vector(-0.54f, 0, 0.25f),
                          Vector(-0.42f, 0, 0.09f)};
  const float3 front[4] = {Vector(0.5f, 0, 0.72f), Vector(0.36f, 0, 0.48f), Vector(0.5f, 0, 0.26f),
                           Vector(0.6f, 0, 0.09f)};
  int part[3][2];
  for (int k = 0; k < 3; ++k) {
    part[k][0] = b.Capsule(back[k], back[k + 1], 0.046f);
    part[k][1] = b.Capsule(front[k], front[k + 1], 0.046f);
  }
  b.AddCapsule(torso, Vector(0.5f, 0, 0.72f), Vector(0.7f, 0, 0.9f), 0.05f);
  b.BeginJoints("root", JointKind::kPlanar);
  b.AddJoint(torso, -1, Vector(0, 0, 0.72f), kY, kX, 0, 0, 0);
  const char* names[3] = {"thigh_joints", "shin_joints", "foot_joints"};
  const float gears[3] = {300, 200, 100};
  for (int k = 0; k < 3; ++k) {
    b.BeginJoints(names[k], JointKind::kHinge);
    b.AddJoint(part[k][0], k == 0 ? torso : part[k - 1][0], back[k], kY, kX, -45, 45, gears[k]);
    b.AddJoint(part[k][1], k == 0 ? torso : part[k - 1][1], front[k], kY, kX, -45, 45, gears[k]);
  }
  b.WithPlane("feet", ContactKind::kCapsulePlane, {5, 6});
  b.WithPlane("shins", ContactKind::kCapsulePlane, {3, 4});
  b.WithPlane("thighs", ContactKind::kCapsulePlane, {1, 2});
  b.WithPlane("trunk", ContactKind::kCapsulePlane, {0, 7});
  b.Pairs("back_front", ContactKind::kCapsuleCapsule, {{3, 4}, {5, 6}, {3, 6}, {4, 5}});
  return b.Build();
}

// 7 bodies in a plane, 6 hinges, upright.
inline Plan Walker2d() {
  PlanBuilder b("walker2d");
  const int torso = b.Capsule(Vector(0, 0, 1.06f), Vector(0, 0, 1.46f), 0.05f);
  int part[3][2];
  auto at = [](int k, int i, int end) {
    const float y = i == 0 ? -0.08f : 0.08f, height[3] = {1.06f, 0.61f, 0.12f};
    return k == 2 && end == 1 ? Vector(0.2f, y, 0.1f) : Vector(0, y, height[k + end]);
  };
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < 2; ++i) part[k][i] = b.Capsule(at(k, i, 0), at(k, i, 1), k == 2 ? 0.06f : 0.05f);
  }
  b.BeginJoints("root", JointKind::kPlanar);
  b.AddJoint(torso, -1, Vector(0, 0, 1.26f), kY, kX, 0, 0, 0);
  const char* names[3] = {"thigh_joints", "leg_joints", "foot_joints"};
  const float gears[3] = {250, 200, 60};
  for (int k = 0; k < 3; ++k) {
    b.BeginJoints(names[k], JointKind::kHinge);
    for (int i = 0; i < 2; ++i)
      b.AddJoint(part[k][i], k == 0 ? torso : part[k - 1][i], at(k, i, 0), kY, kX, -45, 45, gears[k]);
  }
  b.WithPlane("feet", ContactKind::kCapsulePlane, {5, 6});
  b.WithPlane("legs", ContactKind::kCapsulePlane, {3, 4});
  b.WithPlane("thighs", ContactKind::kCapsulePlane, {1, 2});
  b.WithPlane("torso", ContactKind::kCapsulePlane, {0});
  return b.Build();
}

}  // namespace plans

struct NamedPlan {
  const char* name;
  Plan (*make)();
};
inline const NamedPlan kPlans[] = {{"ant", plans::Ant},
                                   {"grasp", plans::Grasp},
                                   {"humanoid", plans::Humanoid},
                                   {"cheetah", plans::Cheetah},
                                   {"walker2d", plans::Walker2d}};

}  // namespace rigidsim
