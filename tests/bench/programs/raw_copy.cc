// Copies BYTES from the device to pinned host memory and back, ROUNDS times, in pieces of
// PIECE_BYTES that follow each other on one stream, and prints the median time in ns of each
// direction: what the link gives without PlexRL. With a DIRECTION it copies that way only and
// prints one time: two of them show what the link gives both ways at once. With ROUNDS 0 it prints
// `begun` after the first round and goes on until it is killed: what another is measured beside.
// Usage: raw_copy BYTES PIECE_BYTES ROUNDS [out|in]

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/bench/programs/cuda_check.h"

int main(int argc, char** argv) {
  const char* const only = argc == 5 ? argv[4] : "";
  const bool goes_out = std::strcmp(only, "in") != 0;
  const bool goes_in = std::strcmp(only, "out") != 0;
  if (argc < 4 || argc > 5 || (argc == 5 && goes_out == goes_in) ||
      std::strtoull(argv[2], nullptr, 10) == 0 || std::atoi(argv[3]) < 0) {
    std::fprintf(stderr, "usage: raw_copy BYTES PIECE_BYTES ROUNDS [out|in]\n");
    return 2;
  }
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const std::size_t piece = std::strtoull(argv[2], nullptr, 10);
  const std::size_t rounds = static_cast<std::size_t>(std::atoi(argv[3]));
  CUdevice device;
  CUcontext context;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDeviceGet(&device, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  CUdeviceptr memory;
  void* host;
  CUstream stream;
  CHECK_CU(cuMemAlloc(&memory, piece));
  CHECK_CU(cuMemHostAlloc(&host, piece, 0));
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemsetD32(memory, 7, piece / 4));
  CHECK_CU(cuCtxSynchronize());

  std::vector<std::int64_t> out;
  std::vector<std::int64_t> in;
  const bool is_endless = rounds == 0;
  for (std::size_t round = 0; is_endless || round <= rounds; ++round) {  // the first one warms up
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t done = 0; goes_out && done < bytes; done += piece) {
      CHECK_CU(cuMemcpyDtoHAsync(host, memory, std::min(piece, bytes - done), stream));
    }
    CHECK_CU(cuStreamSynchronize(stream));
    const auto middle = std::chrono::steady_clock::now();
    for (std::size_t done = 0; goes_in && done < bytes; done += piece) {
      CHECK_CU(cuMemcpyHtoDAsync(memory, host, std::min(piece, bytes - done), stream));
    }
    CHECK_CU(cuStreamSynchronize(stream));
    const auto end = std::chrono::steady_clock::now();
    if (is_endless) {
      if (round == 0) std::puts("begun");
      std::fflush(stdout);
      continue;
    }
    if (round == 0) continue;
    out.push_back((middle - start).count());
    in.push_back((end - middle).count());
  }
  std::sort(out.begin(), out.end());
  std::sort(in.begin(), in.end());
  if (goes_out) std::printf("%lld\n", static_cast<long long>(out[rounds / 2]));
  if (goes_in) std::printf("%lld\n", static_cast<long long>(in[rounds / 2]));
  return 0;
}
