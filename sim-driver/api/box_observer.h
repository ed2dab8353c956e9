// BoxObserver: holds the accesses of a launch against boxes that were declared for it (sim-driver/declared_boxes.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim-driver/declared_boxes.h"
#include "sim-driver/engine/access_observer.h"

namespace tally::sim_driver {

class BoxObserver final : public AccessObserver {
 public:
  // Fails with INVALID_VALUE as cuTallyDeclareBoxes says.
  explicit BoxObserver(std::vector<TallyBox> boxes);
  void OnAccess(const ObservedAccess& access) const override;

 private:
  bool Allows(uint64_t address, uint64_t num_bytes, bool is_write) const;

  std::vector<TallyBox> boxes_;  // in order of address
  // The furthest end of the first n + 1 boxes: where a search backwards may stop.
  std::vector<uint64_t> furthest_end_;
};

// What the launches of the calling thread get; null: nothing was declared.
std::shared_ptr<const BoxObserver>& DeclaredBoxes();

// Lines as cuTallyTakeOutside gives them.
std::string TakeOutside();

}  // namespace tally::sim_driver
