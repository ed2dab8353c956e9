// What a program says of itself when it connects: from the environment, which tally-run sets by its options.
#pragma once

#include <string>

#include "proto/shm/handshake_abi.h"

namespace tally::client_shim {

// False: the program must not get a session, and `*sentence` says why. Other values that make no sense are for tallyd
// to judge.
bool MakeHello(shm::HelloRequest* hello, std::string* sentence);

}  // namespace tally::client_shim
