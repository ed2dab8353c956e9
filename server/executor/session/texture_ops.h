// Arrays, texture and surface objects, tensor maps: what the generated calls of these chapters need besides.
//
// Texture and surface objects are the driver's own values, because kernels get them as parameters; a call may only name
// the session's own. The arrays and addresses inside their descriptions are the session's names and are translated.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tally::server {

class ClientNames;
class ServedRequest;
class WireReader;
class WireWriter;

// As ServeBeforeWire (operations.h), for these chapters.
bool ServeTexturesBeforeWire(ServedRequest& served, ClientNames& names, uint16_t op, WireReader in, WireWriter& out,
                             CUresult* result);

}  // namespace tally::server
