// The dynamic loader that the kernel starts for a program: which one it is, and whether it can load Tally's library.
#pragma once

#include <string>

#include "base/status.h"

namespace tally::launcher {

// The loader of the ELF file `path`. Empty: not an ELF file, so the kernel has to say what is wrong with it. An error
// is one sentence about a program that no loader of ours can help: static, for musl, of another machine, or itself a
// loader.
Result<std::string> FindLoader(const std::string& path);

// Asks `loader` itself, which costs about a millisecond and runs nothing of `library`: does it find everything that it
// needs, in the versions that it needs? If not, the sentence quotes the loader. `program` is for the sentence.
Status CheckLoader(const std::string& program, const std::string& loader, const std::string& library);

}  // namespace tally::launcher
