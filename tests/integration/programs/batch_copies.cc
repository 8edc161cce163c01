// Batches of copies, in both directions and between, that begin while the memory is away; one of
// them reaches beyond its allocation: all of that batch is refused.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kCount = 16, kBytes = 256 << 10;

struct Batch {
  std::vector<CUdeviceptr> targets, sources;
  std::vector<std::size_t> sizes;

  void add(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
    targets.push_back(target);
    sources.push_back(source);
    sizes.push_back(bytes);
  }
  CUresult copy(CUstream stream) {
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t first = 0;
#if CUDA_VERSION >= 13000
    return cuMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), sizes.size(),
                              &attributes, &first, 1, stream);
#else
    std::size_t failed = 0;
    return cuMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), sizes.size(),
                              &attributes, &first, 1, &failed, stream);
#endif
  }
};

CUdeviceptr address(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

}  // namespace

int main() {
  Program program;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr a = allocate(kCount * kBytes), b = allocate(kCount * kBytes);
  const auto in = pattern(kCount * kBytes, 7);
  std::vector<unsigned char> out(in.size());
  for (int round = 0; round < 3; ++round) {
    program.pause();
    Batch into, across, back;
    for (std::size_t i = 0; i < kCount; ++i) {
      into.add(a + i * kBytes, address(in.data() + i * kBytes), kBytes);
      across.add(b + (kCount - 1 - i) * kBytes, a + i * kBytes, kBytes - 64 * i);
      back.add(address(out.data() + i * kBytes), b + i * kBytes, kBytes);
    }
    CHECK(into.copy(stream));
    CHECK(across.copy(stream));
    program.pause();
    CHECK(back.copy(stream));
    CHECK(cuStreamSynchronize(stream));
    print_host("there and back", out.data(), out.size());
    Batch beyond;
    beyond.add(b + (kCount - 1) * kBytes, a, 2 * kBytes);
    std::printf("beyond: %s\n", error_name(beyond.copy(stream)).c_str());
    CHECK(cuMemsetD8Async(a, static_cast<unsigned char>(round), kCount * kBytes, stream));
    CHECK(cuStreamSynchronize(stream));
  }
  print_device("a", a, kCount * kBytes);
  print_device("b", b, kCount * kBytes);
  CHECK(cuStreamDestroy(stream));
}
