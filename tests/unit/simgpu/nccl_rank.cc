// A rank in a process of its own: nccl_rank ID RANKS RANK WHAT, with the id as 32 hex digits.
//   model   every collective against the model
//   killed  one all-reduce with the others, "ready" on stdout, and nothing more
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/unit/simgpu/nccl_model.h"

namespace {

int run(const ncclUniqueId& id, int ranks, int rank, const std::string& what) {
  plexrl::simgpu::NcclRank me(id, ranks, rank, rank);
  std::string wrong;
  if (what == "model") {
    for (const plexrl::simgpu::Collective& c : plexrl::simgpu::all_collectives(ranks)) {
      if (wrong.empty()) wrong = me.run(c);
    }
  } else {
    if (me.count_ranks() != ranks) wrong = "no all-reduce";
    std::puts("ready");
    std::fflush(stdout);
    while (wrong.empty()) pause();
  }
  if (wrong.empty()) wrong = me.error;
  if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || std::strlen(argv[1]) != 32) return 2;
  ncclUniqueId id = {};
  for (std::size_t i = 0; i < 16; ++i) {
    const std::string digits(argv[1] + 2 * i, 2);
    id.internal[i] = static_cast<char>(std::strtoul(digits.c_str(), nullptr, 16));
  }
  return run(id, std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
}
