// Records that a program could have sent: what they are made of is read from the table of calls (driver_api.tsv) and
// from a table of the hand-written operations, with handles that earlier answers gave. Then some are spoilt.
//
// Deterministic: the next record is a function of the seed and of the answers so far.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/server/executor/fakes/scripted_client.h"

namespace tally::fakes {

// One kind of record. Parts, in the order of the payload:
//   stream event graph ...    a handle of that kind, as 8 bytes
//   address size word flags   8 bytes; `size` is small, `flags` smaller
//   half device place         4 bytes
//   zero                      4 bytes that nothing reads
//   node[]                    a count word, so many nodes, then the count word again where `v` stands behind it
//   nodes                     so many nodes as the half before says
//   bytes:N zeros:N           N bytes, mostly or all zero
//   text                      a count word and a few letters
struct RecordShape {
  uint16_t op = 0;
  std::string name;
  std::vector<std::string> parts;
  std::string gives;  // the kind of handle that a good answer begins with; empty: none
};

// All that a client may send without waiting for something that never comes.
std::vector<RecordShape> AllShapes(const std::string& table_path);

class RecordGrammar {
 public:
  RecordGrammar(const std::vector<RecordShape>& shapes, uint64_t seed) : shapes_(shapes), random_(seed) {}

  const RecordShape& Next() { return shapes_[random_() % shapes_.size()]; }
  Payload Fill(const RecordShape& shape);
  // One that is nearly right: words changed, something left out or added.
  Payload Spoil(const Payload& payload);
  void Learn(const RecordShape& shape, const Answer& answer);
  void Know(const std::string& kind, uint64_t value) { known_[kind].push_back(value); }
  uint64_t Below(uint64_t bound) { return random_() % bound; }

 private:
  uint64_t Word(const std::string& part);

  const std::vector<RecordShape>& shapes_;
  std::mt19937_64 random_;
  std::map<std::string, std::vector<uint64_t>> known_;
};

}  // namespace tally::fakes
