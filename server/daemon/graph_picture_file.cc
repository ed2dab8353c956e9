#include "server/daemon/graph_picture_file.h"

#include <unistd.h>

#include <cstdint>

#include "proto/control/executor_link_abi.h"

namespace tally::server {

std::string ReadGraphPicture(int file) {
  uint64_t size = 0;
  if (::pread(file, &size, sizeof(size), 0) != sizeof(size) || size > control::kMostPictureText) return {};
  std::string text(size, '\0');
  return ::pread(file, text.data(), size, sizeof(size)) == static_cast<ssize_t>(size) ? text : std::string();
}

}  // namespace tally::server
