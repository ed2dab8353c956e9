// A mirror's process that does what was not agreed, as one whose page a tenant's kernel has written to.
#pragma once

namespace tally::server {

// Of the process's environment: which of the lies.
inline constexpr const char* kLieVariable = "TALLY_TEST_MIRROR_LIES";

enum Lie {
  kNeverReady = 1,     // sleeps
  kEndsAtOnce,         // exits without a word
  kRandomWords,        // ready; then random numbers in all words that home reads
  kWrongParcels,       // ready; all commands are "done", parcels of other positions, sizes and without descriptors
  kUnknownError,       // ready; an error that CUDA does not have
  kTakesItsErrorBack,  // ready; an error, then none
};

int RunLyingMirror(int lie);

}  // namespace tally::server
