// The pager's hash on the simulated device: what its PTX says, and the native form that runs
// instead.

#include <cstring>
#include <random>
#include <string>

#include "shim/chunk_hash.h"
#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

namespace chunk_hash = shim::chunk_hash;

struct Hashes {
  std::vector<std::uint64_t> sums;
  chunk_hash::Repeat repeat;
};

class ChunkHashTest : public DriverTest {
 protected:
  /// `words` hashed by the kernel of the module that `ptx` is.
  Hashes hash(const std::string& ptx, const std::vector<std::uint32_t>& words) {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, ptx.c_str()), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&kernel, module, chunk_hash::kName), CUDA_SUCCESS);
    std::uint64_t bytes = words.size() * 4;
    const std::size_t blocks = chunk_hash::blocks(bytes);
    CUdeviceptr in = 0, key = 0, out = 0, differs = 0;
    void* repeat = nullptr;  // in host memory, as the pager has it
    EXPECT_EQ(cuMemHostAlloc(&repeat, sizeof(chunk_hash::Repeat), CU_MEMHOSTALLOC_DEVICEMAP),
              CUDA_SUCCESS);
    std::memset(repeat, 0, sizeof(chunk_hash::Repeat));
    EXPECT_EQ(cuMemHostGetDevicePointer(&differs, repeat, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&in, bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&key, chunk_hash::kKeyBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&out, blocks * chunk_hash::kOutBytes), CUDA_SUCCESS);
    std::mt19937 random(7);
    std::vector<std::uint32_t> keys(chunk_hash::kKeyBytes / 4);
    for (auto& word : keys) word = random();
    EXPECT_EQ(cuMemcpyHtoD(in, words.data(), bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(key, keys.data(), chunk_hash::kKeyBytes), CUDA_SUCCESS);
    void* arguments[] = {&in, &bytes, &key, &out, &differs};
    const auto grid = static_cast<unsigned>((blocks + chunk_hash::kWarpsPerGridBlock - 1) /
                                            chunk_hash::kWarpsPerGridBlock);
    EXPECT_EQ(cuLaunchKernel(kernel, grid, 1, 1, chunk_hash::kThreads, 1, 1, 0, nullptr, arguments,
                             nullptr),
              CUDA_SUCCESS);
    Hashes found{std::vector<std::uint64_t>(blocks * chunk_hash::kStreams), {}};
    EXPECT_EQ(cuMemcpyDtoH(found.sums.data(), out, blocks * chunk_hash::kOutBytes), CUDA_SUCCESS);
    std::memcpy(&found.repeat, repeat, sizeof found.repeat);
    EXPECT_EQ(cuMemFreeHost(repeat), CUDA_SUCCESS);
    for (const CUdeviceptr memory : {in, key, out}) {
      EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    return found;
  }

  void expect_same(const std::vector<std::uint32_t>& words, bool differs) {
    const Hashes native = hash(chunk_hash::kPtx, words);
    // Another text, so it is executed as it is written.
    const Hashes executed = hash(chunk_hash::kPtx + std::string("\n"), words);
    EXPECT_EQ(native.sums, executed.sums);
    for (const Hashes& found : {native, executed}) {
      EXPECT_EQ(found.repeat.differs, differs ? 1u : 0u);
      EXPECT_EQ(found.repeat.first, words[0]);
    }
  }
};

TEST_F(ChunkHashTest, TheNativeFormDoesWhatThePtxSays) {
  std::mt19937 random(1);
  // Whole blocks, more than a grid block's worth, and ends within a block.
  for (const std::size_t words : {std::size_t{1024}, std::size_t{10 * 1024}, std::size_t{2},
                                  std::size_t{1024 + 34}, std::size_t{3 * 1024 - 2}}) {
    std::vector<std::uint32_t> content(words);
    for (auto& word : content) word = random();
    expect_same(content, true);
  }
}

TEST_F(ChunkHashTest, ARepeatedWordIsSeenAndOneThatIsNotToo) {
  std::vector<std::uint32_t> content(9 * 1024, 0x12345678);
  expect_same(content, false);
  for (const std::size_t at : {std::size_t{0}, std::size_t{5000}, content.size() - 1}) {
    content[at] ^= 0x80000000;
    expect_same(content, true);
    content[at] ^= 0x80000000;
  }
}

}  // namespace
}  // namespace plexrl::simgpu
