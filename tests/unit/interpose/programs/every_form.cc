// Every row of driver_api.def, asked of cuGetProcAddress at its own version, just before it, and at
// the newest, with and without the per-thread default stream: the wrapper that comes is that of the
// form which name, version and flag mean by the driver's documentation.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

struct Form {
  std::string symbol;
  int since;
  bool is_per_thread;
};

const struct {
  const char* symbol;
  int since;
} kRows[] = {
#define API(symbol, since, cls, detail, params, args) {#symbol, since},
#include "interpose/driver_api.def"
#undef API
};

bool take_off(std::string* name, const char* suffix) {
  const std::size_t length = std::strlen(suffix);
  if (name->size() <= length || name->compare(name->size() - length, length, suffix) != 0) {
    return false;
  }
  name->resize(name->size() - length);
  return true;
}

std::map<std::string, std::vector<Form>> forms_by_base() {
  std::map<std::string, std::vector<Form>> forms;
  for (const auto& row : kRows) {
    std::string base = row.symbol;
    const bool per_thread = take_off(&base, "_ptsz") || take_off(&base, "_ptds");
    for (const char* version : {"_v2", "_v3", "_v4"}) {
      if (take_off(&base, version)) break;
    }
    forms[base].push_back({row.symbol, row.since, per_thread});
  }
  return forms;
}

/// The newest that is old enough; of the two of one version the per-thread one where it is wanted.
const Form* meant(const std::vector<Form>& forms, int version, bool per_thread) {
  const Form* best = nullptr;
  for (const Form& form : forms) {
    if (form.since > version || (form.is_per_thread && !per_thread)) continue;
    if (best == nullptr || form.since > best->since ||
        (form.since == best->since && form.is_per_thread)) {
      best = &form;
    }
  }
  return best;
}

/// Where a per-thread form is wanted and exists at all, a newer legacy one must not come instead.
bool has_mixed_versions(const std::vector<Form>& forms, int version) {
  const Form* legacy = meant(forms, version, false);
  const Form* own = meant(forms, version, true);
  return own != nullptr && legacy != nullptr && own->since < legacy->since;
}

/// Whether a function lies in the preload.
bool is_wrapper(void* function) {
  Dl_info where{};
  return dladdr(function, &where) != 0 &&
         std::strstr(where.dli_fname, "interpose_counting_preload.so") != nullptr;
}

using Resolver = CUresult (*)(const char*, void**, int, cuuint64_t,
                              CUdriverProcAddressQueryResult*);

}  // namespace

int main() {
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto get = reinterpret_cast<Resolver>(dlsym(cuda, "cuGetProcAddress_v2"));
  if (get == nullptr) return 1;
  int asked = 0;
  int wrong = 0;
  for (const auto& [base, forms] : forms_by_base()) {
    for (const Form& form : forms) {
      for (const int version : {form.since - 1, form.since, CUDA_VERSION}) {
        for (const bool per_thread : {false, true}) {
          if (version < 2000 || (per_thread && has_mixed_versions(forms, version))) continue;
          const Form* const expected = meant(forms, version, per_thread);
          void* found = nullptr;
          CUdriverProcAddressQueryResult status{};
          const CUresult result =
              get(base.c_str(), &found, version,
                  per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0, &status);
          void* const wanted =
              expected == nullptr ? nullptr : dlsym(cuda, expected->symbol.c_str());
          ++asked;
          if (result == CUDA_SUCCESS && found == wanted &&
              (expected == nullptr || is_wrapper(found))) {
            continue;
          }
          ++wrong;
          std::fprintf(stderr, "%s at %d%s: not %s\n", base.c_str(), version,
                       per_thread ? ", per thread" : "",
                       expected == nullptr ? "nothing" : expected->symbol.c_str());
        }
      }
    }
  }
  std::printf("%d questions, %d wrong\n", asked, wrong);
  return wrong == 0 && asked > 3000 ? 0 : 1;
}
