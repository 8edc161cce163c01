#pragma once

#include "interpose/handlers.h"
#include "interpose/wrapping.h"
#include "shim/hooks.h"

namespace plexrl::shim {

/// For handlers of calls whose memory is ours in some cases and the driver's in the others: the
/// latter, counted as `took` rows are.

/// Makes `call` as a `took` row would; `key` gives the name of what was taken.
template <typename Call, typename Key>
CUresult count_call(const interpose::CountedCall& counted, Call call, Key key) {
  const CUresult refused = count_enter(counted);
  if (refused != CUDA_SUCCESS) return refused;
  const CUresult result = make_counted(counted, call);
  count_leave(counted, result == CUDA_SUCCESS ? static_cast<std::uint64_t>(key()) : 0, result);
  return result;
}

/// The stream that a form means by `stream`.
inline CUstream interpose_stream(CUstream stream, bool is_per_thread) noexcept {
  return is_per_thread ? interpose::wrapped_stream<true>(stream)
                       : interpose::wrapped_stream<false>(stream);
}

/// Frees what passed through when it was allocated: makes `call` and forgets what was counted under
/// `address`.
CUresult free_counted(std::uint64_t address, CUresult (*call)(void*), void* argument);

template <typename Call>
CUresult free_counted(std::uint64_t address, Call call) {
  return free_counted(
      address, [](void* argument) { return (*static_cast<Call*>(argument))(); }, &call);
}

}  // namespace plexrl::shim
