// Not CUDA's: for tests.
#include "sim-driver/declared_boxes.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "sim-driver/api/box_observer.h"
#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

TALLY_EXPORT CUresult cuTallyDeclareBoxes(const TallyBox* boxes, size_t num_boxes) {
  TALLY_ENTRY({
    Require(num_boxes <= kTallyMaxBoxes, CUDA_ERROR_INVALID_VALUE);
    DeclaredBoxes() =
        boxes == nullptr ? nullptr : std::make_shared<const BoxObserver>(std::vector(boxes, boxes + num_boxes));
  });
}

TALLY_EXPORT CUresult cuTallyTakeOutside(char* text, size_t capacity, size_t* size) {
  TALLY_ENTRY({
    RequireOut(text);
    RequireOut(size);
    const std::string outside = TakeOutside();
    *size = std::min(capacity, outside.size());
    std::memcpy(text, outside.data(), *size);
  });
}
