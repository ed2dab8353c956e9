// What the records of a channel mean: one struct per hand-written operation, in files by chapter. Operations that
// merely carry scalars, handles and plain structs are generated from proto/driver/driver_api.tsv and numbered from
// kFirstWireOp (wire_format.md). Who uses a few of them includes their chapter.
//
// Conventions, for every struct of every chapter: fixed-width fields, no pointer is ever followed by the server, sizes
// in bytes, variable parts follow the struct in the order stated, each starting at a multiple of 8. A field that is not
// used is 0. The server validates a private copy; a record that does not make sense ends the session (the shim never
// writes one), a call that is wrong as the native driver would find it gets the native error.
//
// ADDRESSES of device memory and of shared pinned memory are the real ones, equal in client and executor. The server
// checks that they belong to the session.
#pragma once

#include "proto/shm/handles_abi.h"
#include "proto/shm/operations_abi.h"
#include "proto/shm/records_code_abi.h"
#include "proto/shm/records_context_abi.h"
#include "proto/shm/records_graph_abi.h"
#include "proto/shm/records_launch_abi.h"
#include "proto/shm/records_memory_abi.h"
#include "proto/shm/records_sharing_abi.h"
#include "proto/shm/records_stream_abi.h"
