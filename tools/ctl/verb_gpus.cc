#include "absl/strings/str_cat.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {

namespace {

// Who uses the GPU without PlexRL: "4711 alice python3", several with commas.
std::string bypass_of(const Json& gpu) {
  std::string text;
  for (const Json& process : array_of(gpu, "bypass")) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", count_of(process, "pid"));
    for (const char* key : {"user", "command"}) {
      if (const auto part = text_of(process, key); !part.empty()) absl::StrAppend(&text, " ", part);
    }
  }
  return text.empty() ? list_of(gpu, "bypass_pids") : text;
}

}  // namespace

std::string gpus_table(const Json& gpus) {
  using cli::Table;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"GPU", kRight},
               {"NAME"},
               {"UUID"},
               {"TOTAL", kRight},
               {"BUDGET", kRight},
               {"BY PLEXRL", kRight},
               {"BY OTHERS", kRight},
               {"HOLDER"},
               {"QUEUE"},
               {"DUTY", kRight},
               {"OUT", kRight},
               {"IN", kRight},
               {"BYPASS"}});
  for (const Json& gpu : gpus) {
    table.add_row({count_of(gpu, "index"), text_of(gpu, "name"), text_of(gpu, "uuid"),
                   bytes_of(gpu, "total_bytes"), bytes_of(gpu, "budget_bytes"),
                   bytes_of(gpu, "used_by_plexrl_bytes"), bytes_of(gpu, "used_by_others_bytes"),
                   jobs_of(gpu, "holder"), jobs_of(gpu, "queue"), ratio_of(gpu, "duty_ratio"),
                   rate_of(gpu, "out_bytes_s"), rate_of(gpu, "in_bytes_s"), bypass_of(gpu)});
  }
  return table.str();
}

std::string show_gpus(const Json& answer) {
  const Json& gpus = array_of(answer, "gpus");
  return heading(answer) + (gpus.empty() ? "no GPUs\n" : gpus_table(gpus));
}

}  // namespace plexrl::ctl
