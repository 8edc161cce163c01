#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trace/report_json.h"

/// What a gang was doing at one moment and which of the policy's decisions had led there.
namespace plexrl::trace {

/// Who had a GPU at that moment. Pointers are into the model.
struct Holder {
  std::uint32_t gpu;
  const Gang* gang;
  const Slice* slice;        ///< running, draining or loading
  const Decision* decision;  ///< the last one about it until then; nullptr: none
};

struct GangThen {
  const Gang* gang;
  const Slice* slice;              ///< nullptr: it did not exist then
  const Decision* last = nullptr;  ///< the last decision about it until then; nullptr: none
  const Decision* next = nullptr;  ///< the first one after; nullptr: none
  std::vector<Holder> holders;     ///< of the GPUs it had or wanted, others than itself
};

struct Why {
  const Job* job;
  std::int64_t at_ns;  ///< CLOCK_BOOTTIME
  std::vector<GangThen> gangs;
};

/// `word` is "JOB@TIME": an id, a unique beginning of one or a name, and a time from the trace's
/// beginning. Of several jobs that fit, those count that existed then.
/// Errors: InvalidArgument (no @, a time that is none, several jobs), NotFound (no such job),
/// OutOfRange (the trace does not reach that time).
[[nodiscard]] absl::StatusOr<Why> explain(const Model& model, const std::string& word);

Json why_json(const Model& model, const Why& why);

}  // namespace plexrl::trace
