#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "proto/segment.h"

namespace plexrl::nodemgr::test {

struct TraceRead {
  std::vector<trace::TraceRecord> records;  ///< in the order in which they were written
  std::string problem;                      ///< empty: all bytes could be read
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

/// The bytes of one file of a run.
inline TraceRead read_trace(const std::string& bytes) {
  TraceRead read;
  trace::SegmentParser parser(bytes);
  trace::TraceChunk chunk;
  while (parser.next(&chunk)) {
    read.records.insert(read.records.end(), chunk.records().begin(), chunk.records().end());
  }
  read.problem = parser.problem();
  return read;
}

}  // namespace plexrl::nodemgr::test
