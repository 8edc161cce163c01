#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/ptx/executor.h"

/// What a module is loaded from: PTX text, a fat binary with PTX, or what our linker made.
///
/// Machine code (cubin, ELF) and LTO-IR can't be executed here. They are refused with
/// CUDA_ERROR_NO_BINARY_FOR_GPU and a line on stderr that says what to do instead.
namespace plexrl::simgpu {

/// The PTX texts of an image that fit architecture `sm`: one, or several that are linked together.
/// `bytes` is the image's size, or 0 where only its own headers (or PTX's final zero) tell.
CUresult read_image(const void* image, std::size_t bytes, int sm,
                    std::vector<std::string>* sources);

/// The bytes of a file. CUDA_ERROR_FILE_NOT_FOUND, or CUDA_ERROR_INVALID_VALUE for a null name.
CUresult read_file(const char* path, std::string* bytes);

/// Several PTX texts as one image that read_image understands.
std::string make_container(const std::vector<std::string>& sources);

/// Loads PTX. On failure *log says what and in which line.
CUresult load_ptx(const std::vector<std::string>& sources, int sm,
                  std::unique_ptr<ptx::Module>* module, std::string* log);

/// The options of cuModuleLoadDataEx, cuLinkCreate and cuLibraryLoadData that this driver acts on:
/// log buffers and the wall time. Others (optimisation, targets …) steer a compiler that isn't
/// there and are accepted.
class JitOptions {
 public:
  /// The arrays must outlive this object, as the reference asks of cuLinkCreate's caller.
  JitOptions() = default;
  JitOptions(unsigned count, const CUjit_option* options, void** values)
      : options_(options, count), values_(values) {}
  bool is_valid() const { return options_.empty() || (options_.data() && values_ != nullptr); }
  /// Writes the logs and, as the reference says, how much of each buffer was filled.
  void report(const std::string& error_log, const std::string& info_log, float milliseconds) const;

 private:
  void fill(CUjit_option buffer, CUjit_option size, const std::string& text) const;
  std::span<const CUjit_option> options_;
  void** values_ = nullptr;
};

}  // namespace plexrl::simgpu
