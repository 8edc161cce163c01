#include "interpose/lookup.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "interpose/driver.h"
#include "interpose/real_dl.h"
#include "interpose/settings.h"
#include "interpose/unknown_entry.h"

// Everything here may run under the loader's lock, inside an allocator's start-up or before any
// constructor: no allocation, no lock but the loader's own, no state but what is
// constant-initialised.

namespace plexrl::interpose {
namespace {

// ---- dlsym and dlvsym

// How dlsym_x86_64.S goes on: jump to `value`, or return it.
struct Decision {
  void* value;
  uint64_t is_result;
};

Decision result(void* value) noexcept { return {value, 1}; }

// A dlsym or dlvsym.
struct Question {
  void* handle;
  const char* name;
  const char* version;  // null for dlsym
  const void* caller;

  Decision jump_to_real() const noexcept {
    void* const real = version != nullptr ? reinterpret_cast<void*>(real_dl().dlvsym)
                                          : reinterpret_cast<void*>(real_dl().dlsym);
    return {real, 0};
  }
  void* ask(void* where, const char* what) const noexcept {
    return version != nullptr ? real_dl().dlvsym(where, what, version)
                              : real_dl().dlsym(where, what);
  }
  // Fails as the loader does, with a message for dlerror.
  Decision not_there() const noexcept { return result(ask(RTLD_NEXT, "cuNotInThisDriver")); }
};

// What the tables know of a name.
struct Known {
  const RealLibrary* library = nullptr;
  void* wrapper = nullptr;  // null: the name isn't caught
  int since = 0;
  bool is_driver = false;
};

Known find_other(std::string_view name, const RealLibrary& library) noexcept {
  static constexpr std::string_view kNames[kOtherCount] = {
#define NVML_API(symbol, cls, params, args) #symbol,
#include "interpose/nvml_api.def"
#undef NVML_API
#define NCCL_API(symbol, result, cls, params, args) #symbol, ("p" #symbol),
#include "interpose/nccl_api.def"
#undef NCCL_API
#define VERBS_API(symbol, result, cls, params, args) #symbol,
#include "interpose/verbs_api.def"
#undef VERBS_API
  };
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return {};
  return {&library, kOtherWrappers[static_cast<size_t>(found - kNames)], 0, false};
}

// The libraries beside the driver, by how the names of their functions begin.
const RealLibrary* other_library_of(std::string_view name) noexcept {
  if (name.starts_with("nvml")) return &libnvml;
  if (name.starts_with("nccl") || name.starts_with("pnccl")) return &libnccl;
  return name.starts_with("ibv_") ? &libverbs : nullptr;
}

Known find_known(std::string_view name) noexcept {
  if (const RealLibrary* const library = other_library_of(name)) return find_other(name, *library);
  const Api api = find_api(name);
  if (api == Api::kCount) return {};
  return {&libcuda, kDriverWrappers[static_cast<size_t>(api)], row(api).since, true};
}

bool is_driver_style(std::string_view name) noexcept {
  return name.size() > 2 && name.starts_with("cu") && name[2] >= 'A' && name[2] <= 'Z';
}

bool is_beyond_cap(int since) noexcept { return driver_cap() != 0 && since > driver_cap(); }

// A function that reaches the driver unseen.
Decision unseen(const Question& question, void* function) noexcept {
  void* const guarded = stand_in(function, question.name, 0);
  return guarded != nullptr ? result(guarded) : question.not_there();
}

// A name that no table has: the driver's own only if libcuda defines it.
Decision decide_unknown(const Question& question) noexcept {
  if (!is_driver_style(question.name) || bypassed()) return question.jump_to_real();
  if (libcuda.find().symbol(question.name) == nullptr) return question.jump_to_real();
  if (driver_cap() != 0) return question.not_there();
  if (is_harmless(question.name)) return question.jump_to_real();
  const bool is_scope = question.handle == RTLD_DEFAULT || question.handle == RTLD_NEXT;
  void* const value = is_scope ? libcuda.find().symbol(question.name)
                               : question.ask(question.handle, question.name);
  return value != nullptr ? unseen(question, value) : result(nullptr);
}

// RTLD_DEFAULT and RTLD_NEXT. The real search finds our own export, or that of a preload before us,
// which is as it should be if the driver has the function; if not we must not be found at all.
//
// A libcuda that was loaded RTLD_LOCAL counts as found, which is more than the loader would say of
// a caller outside its scope.
Decision decide_by_scope(const Question& question, const Known& known) noexcept {
  void* const real = known.library->find().symbol(question.name);
  if (real == nullptr) return result(question.ask(RTLD_NEXT, question.name));
  // Our exports have no version, so that the loader finds them for references of any version; but
  // dlvsym passes them over.
  const bool is_passed_over = question.version != nullptr && !bypassed() &&
                              question.ask(question.handle, question.name) == real;
  if (is_passed_over) return result(known.wrapper);
  const void* const us = reinterpret_cast<const void*>(&libcuda);
  if (question.handle == RTLD_NEXT && ElfImage::is_later(question.caller, us) && !bypassed()) {
    return result(known.wrapper);
  }
  return question.jump_to_real();
}

// One library, or (handle of the main program) the global scope.
Decision decide_by_handle(const Question& question, const Known& known) noexcept {
  void* const value = question.ask(question.handle, question.name);
  if (value == nullptr) return result(nullptr);
  void* const real = known.library->find().symbol(question.name);
  if (value == known.wrapper) {
    return result(real != nullptr ? value : question.ask(RTLD_NEXT, question.name));
  }
  if (bypassed()) return result(value);
  if (value == real) return result(known.wrapper);
  // Either a second libcuda, or the wrapper of another preload that catches dlsym too and reaches
  // the driver without us.
  const bool is_unseen =
      ElfImage::containing(value).is(known.library->name()) || !real_dl().dlsym_is_libc;
  return known.is_driver && is_unseen ? unseen(question, value) : result(value);
}

Decision decide(const Question& question) noexcept {
  const char* const name = question.name;
  const bool is_ours =
      name != nullptr && (std::strncmp(name, "cu", 2) == 0 || other_library_of(name) != nullptr);
  if (!is_ours) return question.jump_to_real();
  const Known known = find_known(name);
  if (known.wrapper == nullptr) return decide_unknown(question);
  if (is_beyond_cap(known.since) && !bypassed()) return question.not_there();
  const bool is_scope = question.handle == RTLD_DEFAULT || question.handle == RTLD_NEXT;
  return is_scope ? decide_by_scope(question, known) : decide_by_handle(question, known);
}

// ---- cuGetProcAddress

// "cuMemAlloc" of "cuMemAlloc_v2".
std::string_view base_name(std::string_view symbol) noexcept {
  const size_t end = symbol.size();
  const bool has_version = end > 3 && symbol[end - 3] == '_' && symbol[end - 2] == 'v';
  return has_version ? symbol.substr(0, end - 3) : symbol;
}

// Calls `visit` with each row of a base name, the per-thread forms included.
template <typename Visit>
void for_each_form(std::string_view base, Visit visit) noexcept {
  constexpr std::string_view kVersions[] = {"", "_v2", "_v3", "_v4"};
  constexpr std::string_view kStreams[] = {"", "_ptsz", "_ptds"};
  char symbol[128];
  if (base.size() + 8 > sizeof(symbol)) return;
  std::memcpy(symbol, base.data(), base.size());
  for (const std::string_view version : kVersions) {
    for (const std::string_view stream : kStreams) {
      char* end = std::copy(version.begin(), version.end(), symbol + base.size());
      end = std::copy(stream.begin(), stream.end(), end);
      const Api api = find_api({symbol, static_cast<size_t>(end - symbol)});
      if (api != Api::kCount) visit(api);
    }
  }
}

// The row whose real function this is, or Api::kCount.
Api form_of(std::string_view base, const void* real) noexcept {
  const ElfImage driver_image = libcuda.pinned();
  Api found = Api::kCount;
  for_each_form(base, [&](Api api) {
    if (found == Api::kCount && driver_image.symbol(name(api)) == real) found = api;
  });
  return found;
}

// The row that cuGetProcAddress means by its documentation: the newest form that is not newer than
// the version, per thread where that is asked for and exists. Only for versions that the table
// covers; a newer one may mean a form that the table lacks.
Api form_by_version(std::string_view base, int version, cuuint64_t flags) noexcept {
  if (version > CUDA_VERSION) return Api::kCount;
  const bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  Api best = Api::kCount;
  auto rank = [&](Api api) {
    const std::string_view symbol = name(api);
    const bool is_per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
    return is_per_thread && !wants_per_thread ? -1 : row(api).since * 2 + (is_per_thread ? 1 : 0);
  };
  for_each_form(base, [&](Api api) {
    if (row(api).since > version || rank(api) < 0) return;
    if (best == Api::kCount || rank(api) > rank(best)) best = api;
  });
  return best;
}

// What to hand out instead of `real`, which the driver gave for this question; null for nothing.
void* handed_out(const char* symbol, void* real, int version, cuuint64_t flags) noexcept {
  const std::string_view base = base_name(symbol);
  Api api = form_of(base, real);
  if (api == Api::kCount) api = form_by_version(base, version, flags);
  if (api != Api::kCount && real_driver_function(api) != nullptr) {
    return kDriverWrappers[static_cast<size_t>(api)];
  }
  return is_harmless(symbol) ? real : stand_in(real, symbol, version);
}

int capped(int version) noexcept {
  return driver_cap() != 0 && version > driver_cap() ? driver_cap() : version;
}

// Replaces what the driver gave for this question. False where nothing can be handed out, and *pfn
// is null. cuGetProcAddress("", …) succeeds with a null pointer, which is kept.
bool replace(const char* symbol, void** pfn, int version, cuuint64_t flags) noexcept {
  const bool has_function = symbol != nullptr && pfn != nullptr && *pfn != nullptr;
  if (!has_function) return true;
  *pfn = handed_out(symbol, *pfn, version, flags);
  return *pfn != nullptr;
}

}  // namespace

extern "C" {
[[gnu::visibility("hidden")]] Decision plexrl_decide_dlsym(void* handle, const char* name,
                                                           const void* caller) noexcept;
[[gnu::visibility("hidden")]] Decision plexrl_decide_dlvsym(void* handle, const char* name,
                                                            const char* version,
                                                            const void* caller) noexcept;

Decision plexrl_decide_dlsym(void* handle, const char* name, const void* caller) noexcept {
  return decide({handle, name, nullptr, caller});
}

Decision plexrl_decide_dlvsym(void* handle, const char* name, const char* version,
                              const void* caller) noexcept {
  // A null version is the caller's error, which the real function is best at.
  const Question question{handle, name, version, caller};
  if (version == nullptr) return {reinterpret_cast<void*>(real_dl().dlvsym), 0};
  return decide(question);
}
}

CUresult cuDriverGetVersion(int* driverVersion) noexcept {
  const CUresult answer = driver.cuDriverGetVersion(driverVersion);
  if (answer == CUDA_SUCCESS && driverVersion != nullptr) *driverVersion = capped(*driverVersion);
  return answer;
}

// The two forms differ in how they say "not found", as cuda.h of their time documents.
CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                          cuuint64_t flags) noexcept {
  const int version = capped(cudaVersion);
  const CUresult answer = driver.cuGetProcAddress(symbol, pfn, version, flags);
  if (answer != CUDA_SUCCESS) return answer;
  return replace(symbol, pfn, version, flags) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) noexcept {
  const int version = capped(cudaVersion);
  const CUresult answer = driver.cuGetProcAddress_v2(symbol, pfn, version, flags, symbolStatus);
  if (answer != CUDA_SUCCESS || replace(symbol, pfn, version, flags)) return answer;
  if (symbolStatus != nullptr) *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

}  // namespace plexrl::interpose
