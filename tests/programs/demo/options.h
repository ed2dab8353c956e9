// Command-line options of the two demo programs: `--name number`, each with a default.
#pragma once

#include <map>
#include <string>

#include "tests/programs/check.h"

namespace demo {

using Options = std::map<std::string, double>;

// Fails with a sentence on an option that is not in `defaults` or has no number.
inline Options ParseOptions(int argc, char** argv, Options defaults) {
  for (int i = 1; i < argc; i += 2) {
    std::string name = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
    if (defaults.count(name) == 0) {
      std::string known;
      for (const auto& option : defaults) known += " --" + option.first;
      check::Fail("unknown option %s; known:%s, each with a number", argv[i], known.c_str());
    }
    char* end = nullptr;
    double value = i + 1 < argc ? strtod(argv[i + 1], &end) : 0;
    if (i + 1 >= argc || end == argv[i + 1] || *end != '\0' || !(value >= 0)) {
      check::Fail("option %s needs a number that is not negative", argv[i]);
    }
    defaults[name] = value;
  }
  return defaults;
}

}  // namespace demo
