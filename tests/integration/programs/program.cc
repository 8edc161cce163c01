#include "tests/integration/programs/program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/integration/programs/kernels.ptx.h"
#include "tests/integration/programs/peer.h"
#include "tests/workloads/rlvr/digest.h"

namespace plexrl::integration {
namespace {

constexpr std::size_t kDefaultBallast = 48 << 20;
constexpr auto kPeerPoll = std::chrono::milliseconds(2);
constexpr std::uint32_t kBallastSeed = 77;

}  // namespace

void check(CUresult result, const char* call, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fflush(stdout);
  std::fprintf(stderr, "line %d: %s: %s\n", line, call, error_name(result).c_str());
  std::_Exit(1);
}

std::string error_name(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "error " + std::to_string(result);
  return name;
}

Peer* map_peer() {
  const char* path = std::getenv("PLEXRL_TEST_PEER");
  if (path == nullptr) return nullptr;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  void* page =
      fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Peer), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) {
    std::perror(path);
    std::_Exit(1);
  }
  close(fd);
  return static_cast<Peer*>(page);
}

Peer* require_peer() {
  Peer* const peer = map_peer();
  if (peer != nullptr) return peer;
  std::fprintf(stderr, "%s: PLEXRL_TEST_PEER is not set\n", program_invocation_short_name);
  std::_Exit(2);
}

Program::Program(bool primary_context) : peer_(map_peer()) {
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device_, 0));
  if (!primary_context) return;
  CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
  CHECK(cuCtxSetCurrent(context_));
  CHECK(cuModuleLoadData(&module_, kernels_ptx));
  const char* bytes = std::getenv("PLEXRL_TEST_BALLAST");
  ballast_bytes_ = bytes == nullptr ? kDefaultBallast : std::strtoull(bytes, nullptr, 10);
  ballast_ = allocate(ballast_bytes_);
  launch(kernel("fill"), ballast_bytes_ / 16, nullptr, ballast_, ballast_bytes_ / 16, kBallastSeed);
  CHECK(cuCtxSynchronize());
}

Program::~Program() {
  if (module_ == nullptr) return;
  CHECK(cuCtxSetCurrent(context_));
  print_device("ballast", ballast_, ballast_bytes_);
  CHECK(cuMemFree(ballast_));
  CHECK(cuModuleUnload(module_));
  CHECK(cuDevicePrimaryCtxRelease(device_));
}

CUfunction Program::kernel(const char* name) const {
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module_, name));
  return function;
}

Program::Pause::Pause(const Program& program) : peer_(program.peer_) {
  if (peer_ == nullptr) return;
  // The neighbour may be about to count a round that it ran before this pause, and the runner may
  // be in a look that it began before; the ones after those lie wholly inside.
  round_ = peer_->antagonist_rounds.load() + 2;
  look_ = peer_->looks.load() + 1;
}

bool Program::Pause::is_over() const {
  if (peer_ == nullptr) return true;
  return peer_->antagonist_rounds.load() >= round_ &&
         (peer_->is_watched.load() == 0 || peer_->evicted_look.load() >= look_);
}

void Program::end_pause() {
  if (peer_ != nullptr) peer_->program_pauses.fetch_add(1);
}

void Program::pause() {
  pause([] { std::this_thread::sleep_for(kPeerPoll); });
}

std::uint32_t hash32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr address;
  CHECK(cuMemAlloc(&address, bytes));
  return address;
}

std::vector<unsigned char> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<unsigned char> data(bytes);
  std::uint32_t x = seed * 2654435761u + 1;
  for (unsigned char& byte : data) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<unsigned char>(x >> 24);
  }
  return data;
}

std::string digest(const void* data, std::size_t bytes) {
  workloads::Digest digest;
  digest.add(data, bytes);
  return digest.hex();
}

void print_device(const char* name, CUdeviceptr address, std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  CHECK(cuMemcpyDtoH(data.data(), address, bytes));
  print_host(name, data.data(), bytes);
}

void print_host(const char* name, const void* data, std::size_t bytes) {
  std::printf("%s: %s (%zu bytes)\n", name, digest(data, bytes).c_str(), bytes);
}

}  // namespace plexrl::integration
