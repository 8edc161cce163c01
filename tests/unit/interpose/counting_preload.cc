// A preload made of interpose/ alone: every hook counts and passes, every handler calls the driver.
// cuMemGetInfo_v2 tells the counts: `free` is the calls that went through the gate, `total` the
// unknown entries that were called first.

#include <atomic>
#include <cstring>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "interpose/nccl.h"
#include "interpose/nvml.h"
#include "interpose/verbs.h"

namespace plexrl::shim {
namespace {

using interpose::Api;
using interpose::CountedCall;
using interpose::GateCall;
using interpose::HostCall;
using interpose::UnpageableKind;

constinit std::atomic<size_t> gated{0};
constinit std::atomic<size_t> unknown{0};

}  // namespace

struct DriverCall {
  DriverCall() noexcept {}
  ~DriverCall() {}
};
inline CUresult gate_enter(const GateCall& call) noexcept {
  gated.fetch_add(1, std::memory_order_relaxed);
  return call.stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
inline void gate_leave(const GateCall&, CUresult) noexcept {}
inline bool is_outside(uint64_t, uint64_t) noexcept { return false; }
inline CUresult host_enter(const HostCall&) noexcept { return CUDA_SUCCESS; }
inline void host_leave(const HostCall&, CUresult) noexcept {}
template <typename Call>
CUresult gate_again(GateCall, Call) noexcept {
  return CUDA_ERROR_OUT_OF_MEMORY;
}
template <typename Call>
CUresult host_again(HostCall, Call) noexcept {
  return CUDA_ERROR_OUT_OF_MEMORY;
}
template <typename Call>
CUresult call_with_room(Call call) noexcept {
  return call();
}
template <typename Call>
CUresult make_counted(const CountedCall&, Call call) noexcept {
  return call();
}
inline CUresult count_enter(const CountedCall&) noexcept { return CUDA_SUCCESS; }
inline void count_leave(const CountedCall&, uint64_t, CUresult) noexcept {}
inline uint64_t count_remove(Api, UnpageableKind, uint64_t) noexcept { return 0; }
inline void count_restore(Api, UnpageableKind, uint64_t, uint64_t) noexcept {}

// Also a stranger to every register that a call may leave behind.
void on_unknown_entry(const char* name, int) noexcept {
  unknown.fetch_add(std::strncmp(name, "cu", 2) == 0 ? 1 : 1000, std::memory_order_relaxed);
  asm volatile(
      "xorl %%edi, %%edi; xorl %%esi, %%esi; xorl %%edx, %%edx; xorl %%ecx, %%ecx;"
      "xorl %%r8d, %%r8d; xorl %%r9d, %%r9d; xorps %%xmm0, %%xmm0; xorps %%xmm1, %%xmm1" ::
          : "rdi", "rsi", "rdx", "rcx", "r8", "r9", "xmm0", "xmm1");
}

#define PASS(symbol, params, args) \
  CUresult symbol params noexcept { return driver.symbol args; }
#define DEFINE_pass(symbol, params, args)
#define DEFINE_through(symbol, params, args)
#define DEFINE_gate(symbol, params, args)
#define DEFINE_host(symbol, params, args)
#define DEFINE_room(symbol, params, args)
#define DEFINE_took(symbol, params, args)
#define DEFINE_gave(symbol, params, args)
#define DEFINE_lookup(symbol, params, args)
#define DEFINE_memory(symbol, params, args) PASS(symbol, params, args)
#define DEFINE_track(symbol, params, args) PASS(symbol, params, args)
#define DEFINE_refuse(symbol, params, args) PASS(symbol, params, args)
#define DEFINE_query(symbol, params, args)                               \
  CUresult symbol params noexcept {                                      \
    const CUresult answer = driver.symbol args;                          \
    if constexpr (Api::symbol == Api::cuMemGetInfo_v2) tell_counts args; \
    return answer;                                                       \
  }

namespace {
template <typename... A>
void tell_counts(A...) noexcept {}
void tell_counts(size_t* gate_calls, size_t* unknown_entries) noexcept {
  *gate_calls = gated.load(std::memory_order_relaxed);
  *unknown_entries = unknown.load(std::memory_order_relaxed);
}
}  // namespace

#define API(symbol, since, cls, detail, params, args) DEFINE_##cls(symbol, params, args)
#include "interpose/driver_api.def"
#undef API

#define NVML_DEFINE_real(symbol, params, args)
#define NVML_DEFINE_query(symbol, params, args) \
  nvmlReturn_t symbol params noexcept { return nvml.symbol args; }
#define NVML_API(symbol, cls, params, args) NVML_DEFINE_##cls(symbol, params, args)
#include "interpose/nvml_api.def"
#undef NVML_API

#define OTHER_DEFINE_pass(table, symbol, result, params, args)
#define OTHER_DEFINE_real(table, symbol, result, params, args)
#define OTHER_DEFINE_memory(table, symbol, result, params, args) \
  result symbol params noexcept { return table.symbol args; }
#define OTHER_DEFINE_rank OTHER_DEFINE_memory
#define OTHER_DEFINE_operation OTHER_DEFINE_pass
#define OTHER_DEFINE_pair OTHER_DEFINE_pass
void before_operation(ncclComm_t, CUstream, bool) noexcept {}
void after_operation() noexcept {}
#define NCCL_API(symbol, result, cls, params, args) \
  OTHER_DEFINE_##cls(nccl, symbol, result, params, args)
#include "interpose/nccl_api.def"
#undef NCCL_API
#define VERBS_API(symbol, result, cls, params, args) \
  OTHER_DEFINE_##cls(verbs, symbol, result, params, args)
#include "interpose/verbs_api.def"
#undef VERBS_API

}  // namespace plexrl::shim

#include "interpose/wrappers.inc"
