// Allocations of very different sizes, alive together; each keeps its own bytes over every pause.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t sizes[] = {4,       256,           4096,    65536,   1 << 20, (2 << 20) - 4,
                               2 << 20, (2 << 20) + 4, 5 << 20, 33 << 20};
  std::vector<CUdeviceptr> blocks;
  for (const std::size_t bytes : sizes) {
    blocks.push_back(allocate(bytes));
    const auto data = pattern(bytes, static_cast<std::uint32_t>(bytes));
    CHECK(cuMemcpyHtoD(blocks.back(), data.data(), bytes));
  }
  for (unsigned round = 0; round < 3; ++round) {
    program.pause();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      launch(program.kernel("mix"), sizes[i] / 4, nullptr, blocks[i],
             static_cast<unsigned long long>(sizes[i] / 4), round);
    }
  }
  program.pause();
  for (std::size_t i = 0; i < blocks.size(); ++i) print_device("block", blocks[i], sizes[i]);
  for (const CUdeviceptr block : blocks) CHECK(cuMemFree(block));
}
