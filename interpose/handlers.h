#pragma once

#include "interpose/api.h"
#include "interpose/nccl_api.h"
#include "interpose/nvml_api.h"
#include "interpose/verbs_api.h"

/// What a caught call means is the shim's business. This header declares all that the wrappers
/// (wrappers.inc) call and the shim defines: interpose/ includes nothing of shim/.
///
/// All of it may be called from any thread, before main, after fork, in atexit handlers and from
/// host functions of the driver; nothing may throw.

namespace plexrl::interpose {

/// A call that submits work. `stream` says where: never 0. The default stream is CU_STREAM_LEGACY,
/// or CU_STREAM_PER_THREAD in the _ptds and _ptsz forms; both belong to the thread's current
/// context. kAllStreams: the call works on several streams, or on all of a context.
struct GateCall {
  Api api;
  CUstream stream;
};

inline CUstream all_streams_mark() noexcept { return reinterpret_cast<CUstream>(~uintptr_t{0}); }

/// A call that submits nothing but needs the job's memory backed while it runs.
struct HostCall {
  Api api;
};

/// Memory that stays the driver's. The order is that of the names in plexrl-ctl's `memory`.
enum class UnpageableKind : uint8_t {
  kPool,
  kVmm,
  kIpc,
  kGraph,
  kManaged,
  kArray,
  kHostRegistered,  ///< host memory: no HBM
  kOther,
};

/// A call that takes memory which stays the driver's. `bytes` is what was asked for, 0 where the
/// call doesn't say; `stream` is where the allocation is queued, else null.
struct CountedCall {
  Api api;
  UnpageableKind kind;
  uint64_t bytes;
  CUstream stream;
};

}  // namespace plexrl::interpose

namespace plexrl::shim {

// Functions around the driver's call. They are not declared here, so that the file that includes
// wrappers.inc can define them `inline` just before (the gate's fast path belongs into the
// wrapper):
//
//   CUresult gate_enter(const interpose::GateCall&) noexcept;
//   void     gate_leave(const interpose::GateCall&, CUresult result) noexcept;
//   CUresult host_enter(const interpose::HostCall&) noexcept;
//   void     host_leave(const interpose::HostCall&, CUresult result) noexcept;
//     Around the driver's call of `gate` and `host` rows. Where enter returns an error the driver
//     is not called, leave is not called, and the job gets that error.
//
//   bool is_outside(uint64_t address, uint64_t bytes) noexcept;
//     A copy or fill (interpose/reach.h) is about to touch that: true where the job has no memory
//     at `address` or less than `bytes`, and would reach what is not its own to touch. The driver
//     is not called, and the job gets INVALID_VALUE.
//
//   CUresult count_enter(const interpose::CountedCall&) noexcept;
//   void     count_leave(const interpose::CountedCall&, uint64_t key, CUresult result) noexcept;
//     The same around `took` rows. `key` names what was taken (pointer or handle); 0 unless result
//     is CUDA_SUCCESS.
//
//   uint64_t count_remove(interpose::Api, interpose::UnpageableKind, uint64_t key) noexcept;
//   void     count_restore(interpose::Api, interpose::UnpageableKind, uint64_t key, uint64_t bytes)
//                noexcept;
//     Around `gave` rows: remove before the call (another thread may be given the same address as
//     soon as it is free), returning the bytes that were counted, 0 where the key is unknown;
//     restore where the driver then refused.

//   CUresult gate_again(interpose::GateCall, Call) noexcept;
//   CUresult host_again(interpose::HostCall, Call) noexcept;
//     The driver has answered OUT_OF_MEMORY to a `gate` or `host` row, and leave was called: makes
//     `Call`, which calls the driver once more, as often as that helps. Returns the row's answer.
//
//   CUresult call_with_room(Call) noexcept;
//     The same for `room` rows, with the first call.
//
//   CUresult make_counted(const interpose::CountedCall&, Call) noexcept;
//     And for `took` rows, between count_enter and count_leave.
//
// class DriverCall;
//     Made for as long as a call of any other class but `refuse` and `lookup` lasts; may wait.

/// The job is about to call, for the first time, a driver function that driver_api.def and
/// harmless.def don't know: when this returns the call goes on, and from then on the job may submit
/// work that PlexRL can't see. `version` is the one asked of cuGetProcAddress, 0 for dlsym. Runs on
/// the calling thread like any wrapper and may wait, so that an exclusive lease is held before the
/// call goes on. Told again only where first calls of two threads meet. `name` stays valid.
void on_unknown_entry(const char* name, int version) noexcept;

// One handler for each row of class memory, query, track and refuse: the driver's name and
// signature, our meaning. A handler calls the real function as plexrl::driver.NAME.
#define PLEXRL_DECLARE_pass(symbol, params)
#define PLEXRL_DECLARE_through(symbol, params)
#define PLEXRL_DECLARE_gate(symbol, params)
#define PLEXRL_DECLARE_host(symbol, params)
#define PLEXRL_DECLARE_room(symbol, params)
#define PLEXRL_DECLARE_took(symbol, params)
#define PLEXRL_DECLARE_gave(symbol, params)
#define PLEXRL_DECLARE_lookup(symbol, params)
#define PLEXRL_DECLARE_memory(symbol, params) CUresult symbol params noexcept;
#define PLEXRL_DECLARE_query(symbol, params) CUresult symbol params noexcept;
#define PLEXRL_DECLARE_track(symbol, params) CUresult symbol params noexcept;
#define PLEXRL_DECLARE_refuse(symbol, params) CUresult symbol params noexcept;
#define API(symbol, since, cls, detail, params, args) PLEXRL_DECLARE_##cls(symbol, params)
#include "interpose/driver_api.def"
#undef API

// The same for NVML: one handler for each row of class query of nvml_api.def.
#define PLEXRL_DECLARE_NVML_real(symbol, params)
#define PLEXRL_DECLARE_NVML_query(symbol, params) nvmlReturn_t symbol params noexcept;
#define NVML_API(symbol, cls, params, args) PLEXRL_DECLARE_NVML_##cls(symbol, params)
#include "interpose/nvml_api.def"
#undef NVML_API

// And for each row of class memory or rank of nccl_api.def and verbs_api.def. A handler calls the
// real function as plexrl::nccl.NAME or plexrl::verbs.NAME.
#define PLEXRL_DECLARE_OTHER_pass(symbol, result, params)
#define PLEXRL_DECLARE_OTHER_real(symbol, result, params)
#define PLEXRL_DECLARE_OTHER_memory(symbol, result, params) result symbol params noexcept;
#define PLEXRL_DECLARE_OTHER_operation(symbol, result, params)
#define PLEXRL_DECLARE_OTHER_pair(symbol, result, params)
#define PLEXRL_DECLARE_OTHER_rank(symbol, result, params) result symbol params noexcept;
#define NCCL_API(symbol, result, cls, params, args) \
  PLEXRL_DECLARE_OTHER_##cls(symbol, result, params)
#include "interpose/nccl_api.def"
#undef NCCL_API
#define VERBS_API(symbol, result, cls, params, args) \
  PLEXRL_DECLARE_OTHER_##cls(symbol, result, params)
#include "interpose/verbs_api.def"
#undef VERBS_API

/// Around each call of class operation (of all ranks) or pair of nccl_api.def.
void before_operation(ncclComm_t comm, CUstream stream, bool is_of_all) noexcept;
void after_operation() noexcept;

}  // namespace plexrl::shim
