// Runs an item with random stops and resumes and compares with what the original kernel makes.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "tests/gpu/gate_matrix/gate_queue.h"
#include "tests/gpu/gate_matrix/items.h"

namespace tally::gate_matrix {

struct Streams {
  CUstream work = nullptr;     // of low priority
  CUstream control = nullptr;  // of high priority: stops and records
};

struct ItemResult {
  std::string name;
  std::string failure;     // empty: passed
  double original_us = 0;  // of one run, by the host's clock
  uint32_t num_runs = 0;
  uint32_t num_stops = 0;   // of all runs
  uint32_t num_inside = 0;  // of these, inside a kernel
  uint32_t num_before = 0;  // runs that were stopped before their launch
  bool is_passed() const { return failure.empty(); }
};

// The modules and the memory that all items share.
class Matrix {
 public:
  Matrix(Streams streams, CUmodule original, CUmodule gated);

  // Stops a queue before anything is launched: no block may run then. Resumes it: each must run exactly once.
  ItemResult RunCanary();
  ItemResult Run(const Item& item, uint32_t num_runs, std::mt19937& random);

 private:
  struct Output {
    const float* values = nullptr;
    const uint32_t* counts = nullptr;
  };
  Launch MakeLaunch(const Item& item, bool is_gated) const;
  void Prepare(const Item& item, bool is_gated);
  Output Fetch(const Item& item, bool is_gated, bool is_reference);
  std::string Compare(const Item& item, const Output& output, uint32_t expected_count) const;
  void RunOnce(const Item& item, std::mt19937& random, ItemResult& result);
  CUdeviceptr Address(bool is_gated, const char* variable) const;

  Streams streams_;
  CUmodule original_, gated_;
  GateQueue queue_;
  CUdeviceptr out_ = 0, counts_ = 0, pattern_ = 0;
  float* reference_ = nullptr;  // pinned: what the original kernel made
  float* values_ = nullptr;     // pinned
  uint32_t* count_values_ = nullptr;
};

}  // namespace tally::gate_matrix
