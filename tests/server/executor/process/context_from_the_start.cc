// In an executor on the software GPU: a context of the scripted driver's is there from the start, so that tallyd sees
// time slices and leaves the classes to them.
#include "tests/server/executor/process/scripted_driver.h"

namespace {

[[maybe_unused]] const bool is_made = [] {
  tally::server::ScriptedDriver::MakeContext(/*device=*/0);
  return true;
}();

}  // namespace
