#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

/// What the programs on NVIDIA's runtime library share. Each does ROUNDS rounds of work with pauses
/// in which another job may have the GPU, and prints digests of all its device memory.

#define CHECK_CUDA(call)                                                 \
  do {                                                                   \
    const cudaError_t check_result = (call);                             \
    if (check_result != cudaSuccess) {                                   \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(check_result));                    \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

/// words[i] = hash of words[i], i and round.
static __global__ void mix(std::uint64_t* words, std::size_t count, std::uint64_t round) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    std::uint64_t x = words[i] + (i + 1) * 0x9e3779b97f4a7c15ull + round;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    words[i] = x ^ (x >> 31);
  }
}

inline void print_digest(const char* name, const void* device, std::size_t bytes) {
  std::vector<std::uint64_t> host(bytes / sizeof(std::uint64_t));
  CHECK_CUDA(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
  std::uint64_t digest = 0xcbf29ce484222325ull;
  for (const std::uint64_t word : host) digest = (digest ^ word) * 0x100000001b3ull;
  std::printf("%s: %016llx\n", name, static_cast<unsigned long long>(digest));
}

/// Device memory that a round changes and nothing else uses, so that two of a program do not fit.
class Ballast {
 public:
  explicit Ballast(std::size_t bytes) : count_(bytes / sizeof(std::uint64_t)) {
    if (count_ == 0) return;
    CHECK_CUDA(cudaMalloc(&words_, count_ * sizeof(std::uint64_t)));
    CHECK_CUDA(cudaMemset(words_, 0x5a, count_ * sizeof(std::uint64_t)));
  }
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;

  void change(std::uint64_t round) {
    if (count_ > 0) mix<<<64, 256>>>(words_, count_, round);
  }
  void print() const {
    if (count_ > 0) print_digest("ballast", words_, count_ * sizeof(std::uint64_t));
  }

 private:
  std::size_t count_;
  std::uint64_t* words_ = nullptr;
};

/// LIBRARY [MIB [ROUNDS [PAUSE_MS]]]
struct LibraryOptions {
  LibraryOptions(int argc, char** argv) {
    if (argc < 2) {
      std::fprintf(stderr, "usage: %s LIBRARY [MIB [ROUNDS [PAUSE_MS]]]\n", argv[0]);
      std::exit(2);
    }
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    if (argc > 2) bytes = std::strtoull(argv[2], nullptr, 10) << 20;
    if (argc > 3) rounds = std::atoi(argv[3]);
    if (argc > 4) pause = std::chrono::milliseconds(std::atoi(argv[4]));
  }

  /// The library's function of that name, as `Function` declares it.
  template <typename Function>
  Function* function(const char* name) const {
    void* const found = dlsym(library, name);
    if (found == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    return reinterpret_cast<Function*>(found);
  }

  void* library;
  std::size_t bytes = std::size_t{256} << 20;
  int rounds = 10;
  std::chrono::milliseconds pause{50};
};

/// The function of the same name of the library that was opened.
#define FROM_LIBRARY(options, name) (options).function<decltype(name)>(#name)
