// cuMemGetInfo: what this program takes is what is missing, and neighbours that come and go don't
// show.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

struct View {
  std::size_t free;
  std::size_t total;
  bool operator==(const View&) const = default;
};

View view() {
  View v;
  CHECK(cuMemGetInfo(&v.free, &v.total));
  return v;
}

}  // namespace

int main() {
  Program program;
  const View before = view();
  const std::size_t bytes = 16 << 20;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD8(data, 1, bytes));
  const View with = view();
  std::printf("taken: %zu\n", before.free - with.free);
  bool constant = true;
  for (int round = 0; round < 4; ++round) {
    program.pause();
    constant = constant && view() == with;
    CHECK(cuMemsetD8(data, 2, bytes));
    constant = constant && view() == with;
  }
  std::printf("constant: %s\n", constant ? "yes" : "no");
  CHECK(cuMemFree(data));
  std::printf("given back: %s\n", view() == before ? "yes" : "no");
}
