// Reads the picture of a graph that an executor has written (proto/control/executor_link_abi.h, DrawGraph).
#pragma once

#include <string>

namespace tally::server {

// Empty: there is none, or what is there makes no sense. The executor may still be writing: everything is copied before
// it is looked at.
std::string ReadGraphPicture(int file);

}  // namespace tally::server
