#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

/// What the integration programs share. A program shows one behaviour, prints what it saw, and
/// prints the same whenever and with whomever it runs; the runner compares its output alone with
/// its output when it shares a GPU that is too small for both.
///
/// A program is `int main() { Program program; …; program.pause(); …; }`. Errors end the process
/// with a line that names the call.
namespace plexrl::integration {

/// Ends the process with status 1 unless `result` is CUDA_SUCCESS.
void check(CUresult result, const char* call, int line);
#define CHECK(call) ::plexrl::integration::check((call), #call, __LINE__)

/// The name of an error, for output: "CUDA_SUCCESS".
std::string error_name(CUresult result);

/// The driver, the primary context of device 0, the kernels, and ballast: device memory that
/// nothing else in the program uses, so that it and its neighbour never fit together. The
/// destructor prints the ballast's digest: whatever the program is about, its other memory must
/// survive as well.
///
/// Environment, set by the runner: PLEXRL_TEST_BALLAST, bytes (default 48 MiB); PLEXRL_TEST_PEER, a
/// file shared with the neighbour (peer.h), absent when the program runs alone.
class Program {
 public:
  explicit Program(bool primary_context = true);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  CUdevice device() const { return device_; }
  CUfunction kernel(const char* name) const;

  /// A stretch without device work. When there is a neighbour it lasts until that neighbour has
  /// done a whole round on the GPU meanwhile and the manager has said that memory of this program
  /// is in the host, however long that takes; so each pause costs this program its memory. Alone it
  /// returns at once.
  void pause();

  /// As `pause`, but does `work` again and again meanwhile, so that the memory is taken from a
  /// program that is busy.
  template <typename Work>
  void pause(Work work) {
    for (const Pause pause(*this); !pause.is_over();) work();
    end_pause();
  }

 private:
  /// When a pause that began now has cost the program its memory.
  class Pause {
   public:
    explicit Pause(const Program& program);
    bool is_over() const;

   private:
    struct Peer* peer_;
    std::uint64_t round_ = 0;
    std::uint64_t look_ = 0;
  };
  void end_pause();

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUdeviceptr ballast_ = 0;
  std::size_t ballast_bytes_ = 0;
  struct Peer* peer_ = nullptr;
};

/// Starts a kernel of one dimension that covers `threads`.
/// (static: a program that is compiled for per-thread streams has its own.)
template <typename... Args>
static void launch(CUfunction kernel, std::size_t threads, CUstream stream, Args... args) {
  void* pointers[] = {&args...};
  const unsigned block = 128;
  CHECK(cuLaunchKernel(kernel, static_cast<unsigned>((threads + block - 1) / block), 1, 1, block, 1,
                       1, 0, stream, pointers, nullptr));
}

CUdeviceptr allocate(std::size_t bytes);

/// As the kernels have it (kernels.cu): `mix` makes hash32(word + seed) of a word.
std::uint32_t hash32(std::uint32_t x);

/// Bytes that depend on `seed` only.
std::vector<unsigned char> pattern(std::size_t bytes, std::uint32_t seed);

std::string digest(const void* data, std::size_t bytes);

/// Prints "name: digest (N bytes)" of device memory, copied with cuMemcpyDtoH.
void print_device(const char* name, CUdeviceptr address, std::size_t bytes);
void print_host(const char* name, const void* data, std::size_t bytes);

}  // namespace plexrl::integration
