#pragma once

#include <atomic>
#include <string_view>

#include "interpose/elf_image.h"

namespace plexrl::interpose {

/// The loader's own functions behind the ones that this library exports.
///
/// dlsym is the next one in search order, so that another preload behind us that catches dlsym as
/// well keeps its part for all names but ours; dlvsym and dlopen are libc's. Found at the first
/// question, before any constructor if need be, without dlsym itself. Threads: any.
struct RealDl {
  void* (*dlsym)(void* handle, const char* name);
  void* (*dlvsym)(void* handle, const char* name, const char* version);
  void* (*dlopen)(const char* path, int flags);
  bool dlsym_is_libc;  ///< no other preload catches dlsym behind us
};
const RealDl& real_dl() noexcept;

/// A library of which functions are called (libcuda.so*, libnvidia-ml.so*, …), found when it is
/// first needed and kept loaded from then on: a program that closes it and opens it again must not
/// leave us with stale addresses.
///
/// `inside`, where it is not empty, is a function by which a library of another name is known that
/// has this one inside and exports it (frameworks link NCCL statically). It is taken where none of
/// the right name is loaded: our exports come before its own, which call each other.
class RealLibrary {
 public:
  constexpr explicit RealLibrary(std::string_view name, std::string_view inside = {}) noexcept
      : name_(name), inside_(inside) {}

  /// The library, or an empty image where the process hasn't loaded it. Never loads it. Keeps it
  /// loaded: may take the loader's lock, so not for lookups.
  ElfImage pinned() noexcept;

  /// The library without keeping it. Takes only the loader's list lock.
  ElfImage find() const noexcept;

  std::string_view name() const noexcept { return name_; }

 private:
  enum State : int { kUnknown, kWriting, kKnown };
  ElfImage search() const noexcept;

  std::string_view name_;
  std::string_view inside_;
  std::atomic<int> state_{kUnknown};
  ElfImage image_;  // written once, by whoever moves state_ from unknown to writing
};

extern RealLibrary libcuda;
extern RealLibrary libnvml;
extern RealLibrary libnccl;
extern RealLibrary libverbs;

}  // namespace plexrl::interpose
