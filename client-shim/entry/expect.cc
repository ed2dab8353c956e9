// What the program says of work to come: exported by this library and by no driver. include/tally/expect_work.h is for
// programs.
#include "client-shim/transport/expected_work.h"

extern "C" __attribute__((visibility("default"))) int tally_expect_work(unsigned long microseconds) {
  return tally::client_shim::ExpectWork(microseconds);
}
