// usage: make_trace FOLDER EVENTS     a run's folder with so many records of a made-up trace
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "proto/segment.h"
#include "tests/unit/tools/long_trace.h"

int main(int argc, char** argv) {
  using namespace plexrl::trace;
  if (argc != 3) return 2;
  constexpr long long kFrame = 500, kSegment = 1'000'000;  // records
  std::filesystem::create_directories(argv[1]);
  LongTrace trace(1);
  std::ofstream out;
  const long long events = std::atoll(argv[2]);
  for (long long done = 0; done < events;) {
    if (done % kSegment == 0) {
      char name[32];
      std::snprintf(name, sizeof name, "/%06lld.plxt", done / kSegment);
      out = std::ofstream(argv[1] + std::string(name), std::ios::binary);
    }
    TraceChunk chunk;
    for (long long i = 0; i < kFrame && done < events; ++i, ++done)
      *chunk.add_records() = trace.next();
    out << encode_frame(chunk);
  }
  if (!out.flush()) return 1;
  return 0;
}
