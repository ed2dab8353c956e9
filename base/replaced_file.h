// A file that whoever reads it finds whole: what was there before, or all that is there now.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace tally {

// Writes `text` beside `path` and renames it into its place. `mode`: of the file, whatever the umask says. Not OK: one
// sentence that begins with "write", and what was there is there still. From any thread and process.
Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode);

}  // namespace tally
