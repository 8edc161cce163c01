#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/trace/verbs.h"
#include "tools/trace/why.h"

namespace plexrl::trace {
namespace {

std::string gpu_list(std::uint64_t mask) {
  const auto gpus = gpus_in(mask);
  if (gpus.empty()) return "no GPU";
  std::string text;
  for (const int gpu : gpus) text += (text.empty() ? " " : ", ") + std::to_string(gpu);
  return (gpus.size() == 1 ? "GPU" : "GPUs") + text;
}

std::string gang_name(const Model& model, const Gang& gang) {
  return cli::printable(model.job_name(gang.job_id)) + ", gang " + std::to_string(gang.id);
}

std::string state_words(const Model& model, const Slice& slice) {
  std::string text = slice.state + " since " + relative_time(model, slice.start_ns) + " until " +
                     relative_time(model, slice.end_ns);
  if (!slice.reason.empty()) text += " (" + cli::printable(slice.reason) + ")";
  return text;
}

void print_decision(const Model& model, const char* indent, const char* which,
                    const Decision& decision) {
  const DecisionRecord& record = decision.record;
  std::cout << indent << which << " at " << relative_time(model, decision.at_ns) << ": "
            << cli::printable(record.kind()) << ", " << gpu_list(record.gpus_mask()) << ": "
            << cli::printable(record.reason()) << "\n";
  for (const Figure& figure : record.figures()) {
    if (figure.name() == "other_gang") continue;  // an id; who had the GPU is said below
    const auto [words, text] = cli::format_figure(figure.name(), figure.value());
    std::cout << indent << "  " << cli::printable(words) << ": " << text << "\n";
  }
}

void print_gang(const Model& model, const GangThen& then) {
  std::cout << "\n" << gang_name(model, *then.gang) << ": ";
  if (then.slice == nullptr) {
    std::cout << "not there\n";
    return;
  }
  std::cout << state_words(model, *then.slice) << ", " << gpu_list(then.slice->gpus_mask) << "\n";
  if (then.last == nullptr) {
    std::cout << "  nothing had been decided about it\n";
  } else {
    print_decision(model, "  ", "last decision", *then.last);
  }
  for (const Holder& holder : then.holders) {
    std::cout << "  GPU " << holder.gpu << " had " << gang_name(model, *holder.gang) << ": "
              << state_words(model, *holder.slice) << "\n";
    if (holder.decision != nullptr) {
      print_decision(model, "    ", "last decision about it", *holder.decision);
    }
  }
  if (then.next != nullptr) print_decision(model, "  ", "next decision", *then.next);
}

}  // namespace

int print_why(const Model& model, const VerbOptions& options) {
  const auto why = explain(model, options.job_at);
  if (!why.ok()) {
    std::cerr << "plexrl-trace: " << why.status().message() << "\n";
    return absl::IsInvalidArgument(why.status()) ? cli::kUsage : cli::kFailed;
  }
  if (options.json) {
    std::cout << why_json(model, *why).dump() << "\n";
    return cli::kDone;
  }
  std::cout << heading(model) << "\n"
            << cli::printable(model.job_name(why->job->id)) << " at "
            << relative_time(model, why->at_ns) << "\n";
  for (const GangThen& then : why->gangs) print_gang(model, then);
  if (why->gangs.empty()) std::cout << "it had not used a GPU\n";
  return cli::kDone;
}

}  // namespace plexrl::trace
