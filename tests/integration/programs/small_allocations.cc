// Hundreds of small allocations, of which some are freed and made again between pauses. Addresses
// keep the driver's alignment.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  std::vector<CUdeviceptr> blocks(600);
  const auto bytes_of = [](std::size_t i) { return 4 + 4 * (i * 37 % 1500); };
  const auto write = [&](std::size_t i, std::uint32_t seed) {
    const auto data = pattern(bytes_of(i), seed);
    CHECK(cuMemcpyHtoD(blocks[i], data.data(), data.size()));
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = allocate(bytes_of(i));
    write(i, static_cast<std::uint32_t>(i));
  }
  for (std::size_t round = 1; round <= 3; ++round) {
    program.pause();
    for (std::size_t i = round; i < blocks.size(); i += 5) CHECK(cuMemFree(blocks[i]));
    for (std::size_t i = round; i < blocks.size(); i += 5) {
      blocks[i] = allocate(bytes_of(i));
      write(i, static_cast<std::uint32_t>(1000 * round + i));
    }
  }
  program.pause();
  std::vector<unsigned char> all;
  bool aligned = true;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    aligned = aligned && blocks[i] % 256 == 0;
    std::vector<unsigned char> data(bytes_of(i));
    CHECK(cuMemcpyDtoH(data.data(), blocks[i], data.size()));
    all.insert(all.end(), data.begin(), data.end());
    CHECK(cuMemFree(blocks[i]));
  }
  print_host("all", all.data(), all.size());
  std::printf("aligned to 256: %s\n", aligned ? "yes" : "no");
}
