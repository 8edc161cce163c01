// A trace, from a segment file that may be damaged to everything that plexrl-trace makes of it. A
// mutated segment rarely has the right checksum, so the input is also taken as what a frame holds.

#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/segment.h"
#include "tools/trace/export_csv.h"
#include "tools/trace/export_perfetto.h"
#include "tools/trace/gap_report.h"
#include "tools/trace/model.h"
#include "tools/trace/reader.h"
#include "tools/trace/report_json.h"
#include "tools/trace/summary.h"
#include "tools/trace/timeline.h"

namespace {

using namespace plexrl::trace;

void report(const RawTrace& trace) {
  const Model model = build_model(trace);
  const Summary summary = summarize(model);
  for (const JobSummary& job : summary.jobs) {
    if (job.duty_ratio() < 0 || job.slowdown_ratio() < 0) std::abort();
  }
  export_csv(model);
  export_perfetto(model);
  export_json(model).dump(-1, ' ', false, Json::error_handler_t::replace);
  summary_json(model, summary);
  gaps_json(model, gap_report(model, 5));
  if (model.end_ns > model.start_ns) draw_timeline(model, {model.start_ns, model.end_ns});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const kBefore = google::protobuf::SetLogHandler(nullptr);  // a line an input
  (void)kBefore;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  RawTrace trace;
  TraceChunk chunk;
  SegmentParser parser(bytes);
  const auto take = [&](TraceRecord&& record) { trace.records.push_back(std::move(record)); };
  while (parser.next(&chunk)) take_records(chunk, take);
  if (parser.offset() > size || (parser.offset() < size && parser.problem().empty())) std::abort();
  if (trace.records.empty() && chunk.ParseFromArray(data, static_cast<int>(size))) {
    take_records(chunk, take);
  }
  report(trace);
  return 0;
}
