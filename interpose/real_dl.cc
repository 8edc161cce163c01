#include "interpose/real_dl.h"

#include <dlfcn.h>

namespace plexrl::interpose {
namespace {

// glibc moved the dl functions from libdl into libc in 2.34; dlvsym of both is the default version.
void* loader_function(const char* name) noexcept {
  if (void* found = ElfImage::loaded("libc.so.").symbol(name)) return found;
  return ElfImage::loaded("libdl.so.").symbol(name);
}

RealDl find_real_dl() noexcept {
  RealDl real{};
  real.dlvsym = reinterpret_cast<decltype(real.dlvsym)>(loader_function("dlvsym"));
  real.dlopen = reinterpret_cast<decltype(real.dlopen)>(loader_function("dlopen"));
  void* const libc_dlsym = loader_function("dlsym");
  // Called from here, RTLD_NEXT means "behind this library". The two versions are one function.
  void* next = nullptr;
  if (real.dlvsym != nullptr) {
    next = real.dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (next == nullptr) next = real.dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  }
  if (next == nullptr) next = libc_dlsym;
  real.dlsym = reinterpret_cast<decltype(real.dlsym)>(next);
  const ElfImage owner = ElfImage::containing(next);
  real.dlsym_is_libc = owner.is("libc.so.") || owner.is("libdl.so.");
  return real;
}

constinit RealDl the_real_dl{};
constinit std::atomic<bool> is_real_dl_known{false};

}  // namespace

// Racing threads find and store the same words.
const RealDl& real_dl() noexcept {
  if (!is_real_dl_known.load(std::memory_order_acquire)) [[unlikely]] {
    const RealDl found = find_real_dl();
    std::atomic_ref(the_real_dl.dlsym).store(found.dlsym, std::memory_order_relaxed);
    std::atomic_ref(the_real_dl.dlvsym).store(found.dlvsym, std::memory_order_relaxed);
    std::atomic_ref(the_real_dl.dlopen).store(found.dlopen, std::memory_order_relaxed);
    std::atomic_ref(the_real_dl.dlsym_is_libc)
        .store(found.dlsym_is_libc, std::memory_order_relaxed);
    is_real_dl_known.store(true, std::memory_order_release);  // pairs with the acquire above
  }
  return the_real_dl;
}

constinit RealLibrary libcuda{"libcuda.so"};
constinit RealLibrary libnvml{"libnvidia-ml.so"};
constinit RealLibrary libnccl{"libnccl.so", "ncclGetVersion"};
constinit RealLibrary libverbs{"libibverbs.so", "ibv_reg_mr"};

ElfImage RealLibrary::search() const noexcept {
  const ElfImage named = ElfImage::loaded(name_);
  return named || inside_.empty() ? named : ElfImage::defining(inside_, this);
}

ElfImage RealLibrary::find() const noexcept {
  if (state_.load(std::memory_order_acquire) == kKnown) return image_;
  return search();
}

ElfImage RealLibrary::pinned() noexcept {
  if (state_.load(std::memory_order_acquire) == kKnown) return image_;
  const ElfImage image = search();
  if (!image) return image;
  real_dl().dlopen(image.path(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  int unknown = kUnknown;
  if (state_.compare_exchange_strong(unknown, kWriting, std::memory_order_relaxed)) {
    image_ = image;
    state_.store(kKnown, std::memory_order_release);  // pairs with the acquires above
  }
  return image;
}

}  // namespace plexrl::interpose
