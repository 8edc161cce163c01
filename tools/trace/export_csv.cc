#include "tools/trace/export_csv.h"

#include "absl/strings/str_cat.h"
#include "tools/cli/format.h"
#include "tools/trace/report_json.h"

namespace plexrl::trace {
std::string export_csv(const Model& model) {
  std::string out =
      "job,name,gang,gpus,state,start_mono_ns,end_mono_ns,length_ns,epoch,reason,simulated\r\n";
  for (const Gang& gang : model.gangs) {
    for (const Slice& slice : gang.slices) {
      std::string gpus;
      for (const int gpu : gpus_in(slice.gpus_mask)) {
        absl::StrAppend(&gpus, gpus.empty() ? "" : " ", gpu);
      }
      for (const std::string& cell :
           {gang.job_id, model.job_name(gang.job_id), std::to_string(gang.id), gpus, slice.state,
            std::to_string(slice.start_ns), std::to_string(slice.end_ns),
            std::to_string(slice.length_ns()), epoch_text(slice.generation, slice.counter),
            slice.reason}) {
        out += cli::csv_cell(cell) + ",";
      }
      out += model.simulated ? "true\r\n" : "false\r\n";
    }
  }
  return out;
}

}  // namespace plexrl::trace
