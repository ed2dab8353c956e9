// Paths that nobody but us and root can make lead elsewhere.
//
// Who owns a directory, or may write into it, can rename what is in it and put his own there. So a directory is ours
// only if every directory on the way belongs to us or to root, and either nobody else may write into it or it is
// sticky.
#pragma once

#include <string>

#include "base/status.h"

namespace tally {

// Makes what is missing of an absolute path, with mode 0700.
Status MakePrivateDirectories(const std::string& path);

// Looks at every part of an absolute path, symbolic links and where they lead included, down to the first that is not
// there. The last one must not be writable by others, sticky or not. kPermissionDenied: a sentence that says which and
// what to do.
Status CheckPrivatePath(const std::string& path);

}  // namespace tally
