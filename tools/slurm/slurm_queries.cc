#include "tools/slurm/slurm_queries.h"

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace plexrl::slurm {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  return absl::StrSplit(text, separator, absl::SkipWhitespace());
}

std::string stripped(std::string text) {
  absl::StripAsciiWhitespace(&text);
  return text;
}

/// What a program has written, as one line for a message.
std::string told(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with('*')) lines.push_back(stripped(line));
  }
  return absl::StrJoin(lines, "; ");
}

/// The value of a key in a line of "Key=Value Key=Value"; values end at a blank.
std::string value_of(const std::string& line, const std::string& key) {
  for (const std::string& word : split(line, ' ')) {
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  }
  return "";
}

/// Of "plexrl:4,gpu:a100:2(S:0-1)".
int count_of_slots(const std::string& gres) {
  constexpr std::string_view kName = "plexrl:";
  int count = 0;
  for (const std::string& one : split(gres, ',')) {
    if (!one.starts_with(kName)) continue;
    std::from_chars(one.data() + kName.size(), one.data() + one.size(), count);
  }
  return count;
}

}  // namespace

absl::Status check_controller(const Ask& ask) {
  const auto answer = ask({"scontrol", "ping"});
  if (!answer.ok()) return answer.status();
  if (answer->status == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("Slurm's controller does not answer (scontrol ping: ", told(answer->text), ")"));
}

bool SlurmNode::takes_jobs() const {
  for (const char* word :
       {"DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "INVAL", "UNKNOWN"}) {
    if (absl::StrContains(state, word)) return false;
  }
  return !absl::StrContains(state, '*');  // it does not respond
}

SlurmNode parse_node(const std::string& line) {
  SlurmNode node;
  node.state = value_of(line, "State");
  node.plexrl_slots = count_of_slots(value_of(line, "Gres"));
  // The last one, and it has blanks in it: "Reason=broken disk [root@2026-11-30T20:00:00]".
  constexpr std::string_view kReason = " Reason=";
  if (const auto at = line.find(kReason); at != std::string::npos) {
    const std::string reason = line.substr(at + kReason.size());
    node.reason = stripped(reason.substr(0, reason.find('\n')));
  }
  return node;
}

absl::StatusOr<SlurmNode> find_node(const Ask& ask, const std::string& name) {
  const auto answer = ask({"scontrol", "--oneliner", "show", "node", name});
  if (!answer.ok()) return answer.status();
  if (answer->status == 0) return parse_node(answer->text);
  const std::string why = told(answer->text);
  if (absl::StrContains(why, "not found")) {
    return absl::NotFoundError(absl::StrCat("Slurm knows no node '", name,
                                            "': give node managers the names that Slurm "
                                            "has for their nodes (plexrl-nodemgr --node)"));
  }
  return absl::UnavailableError(absl::StrCat("Slurm does not tell of node ", name, ": ", why));
}

std::optional<PendingJob> parse_pending(const std::string& lines, const std::string& comment) {
  for (const std::string& line : split(lines, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits('|', 3));
    if (words.size() != 4 || words[1] != comment) continue;
    return PendingJob{
        .id = words[0], .reason = words[3], .expected = words[2] == "N/A" ? "" : words[2]};
  }
  return std::nullopt;
}

std::optional<PendingJob> find_pending(const Ask& ask, const std::string& comment) {
  const auto answer =
      ask({"squeue", "--me", "--noheader", "--states=PENDING", "--format", kPendingFormat});
  if (!answer.ok() || answer->status != 0) return std::nullopt;
  return parse_pending(answer->text, comment);
}

std::string running_on(const Ask& ask, const std::string& node) {
  const auto answer = ask({"squeue", "--noheader", "--states=RUNNING,COMPLETING", "--nodelist",
                           node, "--format", "%i (%j)"});
  if (!answer.ok() || answer->status != 0) return "";
  return absl::StrJoin(split(answer->text, '\n'), ", ");
}

std::string explain_pending(const PendingJob& job, const std::string& node,
                            const std::string& others) {
  std::string why;
  std::string when;
  if (job.reason == "Resources") {
    why = absl::StrCat("others have what it needs of ", node, " (Resources)");
    if (!others.empty()) when = absl::StrCat("; when one of these ends: ", others);
  } else if (job.reason == "Priority") {
    why = absl::StrCat("jobs of a higher priority wait for ", node, " too (Priority)");
  } else {
    why = job.reason;
  }
  if (!job.expected.empty()) when = absl::StrCat("; Slurm expects to start it at ", job.expected);
  return absl::StrCat("waiting in Slurm as job ", job.id, ": ", why, when);
}

std::optional<bool> has_job(const Ask& ask, const std::string& id) {
  const auto answer = ask({"squeue", "--noheader", "--jobs", id, "--format", "%T"});
  if (!answer.ok()) return std::nullopt;
  if (absl::StrContains(answer->text, "Invalid job id")) return false;  // it has forgotten it
  if (answer->status != 0) return std::nullopt;
  return !stripped(answer->text).empty();
}

}  // namespace plexrl::slurm
