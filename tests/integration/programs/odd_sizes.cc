// Sizes and offsets that are no multiple of anything.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t sizes[] = {1, 3, 255, 4097, 100'003, (2 << 20) + 1, 7'654'321};
  std::vector<CUdeviceptr> blocks;
  for (const std::size_t bytes : sizes) blocks.push_back(allocate(bytes));
  for (std::uint32_t round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::size_t skip = sizes[i] / (round + 2);
      const auto data = pattern(sizes[i] - skip, round);
      if (round == 0) CHECK(cuMemsetD8(blocks[i], 0xEE, sizes[i]));
      CHECK(cuMemcpyHtoD(blocks[i] + skip, data.data(), data.size()));
    }
    program.pause();
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    print_device("block", blocks[i], sizes[i]);
    CHECK(cuMemFree(blocks[i]));
  }
}
