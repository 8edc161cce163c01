// Eight streams with their own memory, all busy at once when the pause comes.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 2 << 20, words = bytes / 4;
  std::vector<CUstream> streams(8);
  std::vector<CUdeviceptr> blocks;
  for (CUstream& stream : streams) {
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    blocks.push_back(allocate(bytes));
    CHECK(cuMemsetD32Async(blocks.back(), static_cast<unsigned>(blocks.size()), words, stream));
  }
  for (unsigned round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      launch(program.kernel("hold"), 1, streams[i], 2'000'000ull);
      launch(program.kernel("mix"), words, streams[i], blocks[i],
             static_cast<unsigned long long>(words), round);
    }
    program.pause();
  }
  for (const CUstream stream : streams) CHECK(cuStreamSynchronize(stream));
  for (const CUdeviceptr block : blocks) print_device("block", block, bytes);
  for (const CUdeviceptr block : blocks) CHECK(cuMemFree(block));
  for (const CUstream stream : streams) CHECK(cuStreamDestroy(stream));
}
