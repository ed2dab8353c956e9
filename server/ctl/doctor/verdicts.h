// From facts to verdicts: is it in order, what was found, what to do.
#pragma once

#include <string>
#include <vector>

#include "server/ctl/doctor/facts.h"

namespace tally::cli {

enum class Verdict : uint8_t { kOk, kWarning, kFailed };

// "ok", "warning", "failed"; never null.
const char* NameOf(Verdict verdict);

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string found;
  std::string advice;  // one sentence on what to do; empty: nothing
};

// A failed check is something because of which programs do not run; a warning, something that they run without.
std::vector<Check> Judge(const Facts& facts);

// For people, a line per check and one more for each advice.
std::string CheckTable(const std::vector<Check>& checks);

}  // namespace tally::cli
