#include "tools/cluster/place.h"

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>

#include "nodemgr/ids.h"
#include "nodemgr/settings/cat.h"
#include "tools/cli/exit_status.h"
#include "tools/cluster/manager_call.h"
#include "tools/ctl/admin_client.h"
#include "tools/ctl/answer.h"
#include "tools/slurm/slurm_queries.h"

namespace plexrl::cluster_tool {
namespace {

namespace v1 = cluster::v1;
using namespace std::chrono_literals;
using nodemgr::cat;

/// How long the cluster manager may be away before nobody tells it any more of a job that runs.
constexpr auto kGiveUpTelling = 10min;
constexpr int kMostLine = 256;
/// Between two questions to Slurm whether it still has a job that waits there.
constexpr auto kAskSlurm = 10s;

/// 0: it is none.
std::uint32_t slurm_id(const char* text) {
  const std::string_view digits = text != nullptr ? text : "";
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  return error == std::errc{} && end == digits.data() + digits.size() ? id : 0;
}

std::string value_of(const char* variable) {
  const char* const value = ::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  return value != nullptr ? value : "";
}

std::string user_name() {
  const passwd* const entry = ::getpwuid(::geteuid());  // NOLINT(concurrency-mt-unsafe)
  return entry != nullptr ? entry->pw_name : cat(::geteuid());
}

/// As this machine's node manager calls it, else as the host is called, which is what node managers
/// take where they are not told otherwise.
std::string own_name(const std::vector<std::string>& admin_sockets) {
  const auto status = ctl::ask(admin_sockets, {{"verb", "status"}}, 10s);
  if (status.ok() && !ctl::text_of(*status, "node").empty()) return ctl::text_of(*status, "node");
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// Slurm starts a job on the node that it was asked for.
bool is_this_node(const std::string& node, const std::vector<std::string>& admin_sockets) {
  return value_of("SLURMD_NODENAME") == node || own_name(admin_sockets) == node;
}

void say(const std::string& line) {
  std::string text = line;
  for (char& c : text) c = c == '\n' ? ' ' : c;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Something that may pass: the manager is away, or can't write just now.
bool may_pass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

class Request {
 public:
  explicit Request(PlaceOptions options) : options_(std::move(options)) {}

  int run() {
    const auto channel = open_channel(options_.manager);
    if (!channel.ok()) return fail(channel.status());
    stub_ = v1::Cluster::NewStub(*channel);
    request_.set_id(options_.id.empty() ? nodemgr::id_text(nodemgr::random_id()) : options_.id);
    request_.set_slurm_job_id(slurm_id(value_of("SLURM_JOB_ID").c_str()));
    *request_.mutable_job() = options_.job;
    request_.mutable_job()->set_user(user_name());
    for (;;) {
      if (const std::optional<int> status = ask_once()) return *status;
      if (!listen()) return leave("plexrl-run ended before the job began");
      if (is_deaf_ && std::chrono::steady_clock::now() > give_up_) return cli::kFailed;
      if (is_submitted_ && !slurm_has_it()) return leave("Slurm ended the job before it began");
    }
  }

 private:
  static int fail(const absl::Status& status) {
    say(cat("failed ", nodemgr::message_of(status)));
    return cli::kFailed;
  }

  /// The exit status when it is over.
  std::optional<int> ask_once() {
    const auto reply = call(options_.manager, *stub_, &v1::Cluster::Stub::PlaceJob, request_);
    if (!reply.ok()) {
      if (!is_known_ || !may_pass(reply.status())) return fail(reply.status());
      tell(cat("queued ", nodemgr::message_of(reply.status()), "; trying again"));
      return std::nullopt;
    }
    is_known_ = true;
    pause_ = std::chrono::duration<double>(std::max(0.01, reply->ask_again_s()));
    return take(reply->placement());
  }

  std::optional<int> take(const v1::Placement& placement) {
    const v1::Decision& decision = placement.decision();
    switch (placement.state()) {
      case v1::Placement::QUEUED:
        tell(cat("queued ", decision.reason(), decision.when().empty() ? "" : "; ",
                 decision.when()));
        return std::nullopt;
      case v1::Placement::PLACED: {
        std::string gpus;
        for (const std::string& gpu : placement.gpus()) gpus += cat(gpus.empty() ? "" : ",", gpu);
        if (!is_placed_) {
          const bool is_here = is_this_node(placement.node(), options_.admin_sockets);
          say(cat("placed ", is_here ? "here " : "elsewhere ", placement.node(), " ", gpus, " ",
                  placement.id()));
        }
        is_placed_ = true;
        return std::nullopt;
      }
      case v1::Placement::RUNNING:
        return cli::kDone;
      case v1::Placement::REFUSED:
        say(cat("refused ", decision.reason(), decision.when().empty() ? "" : "; ",
                decision.when()));
        return cli::kFailed;
      default:
        return fail(absl::AbortedError(cat("the request has ended: ", placement.ended_reason())));
    }
  }

  /// News for the user, before it has a place.
  void tell(const std::string& line) {
    if (!is_placed_ && line != told_) say(line);
    told_ = line;
  }

  /// Until it is time to ask again, or there is something to say. False: nobody wants the place.
  bool listen() {
    if (is_deaf_) {
      ::usleep(static_cast<useconds_t>(pause_.count() * 1e6));
      return true;
    }
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, static_cast<int>(pause_.count() * 1000));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return true;
    char bytes[kMostLine];
    const ssize_t got = ready < 0 ? -1 : ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got > 0) {
      heard_.append(bytes, static_cast<std::size_t>(got));
      take_lines();
      return heard_.size() < kMostLine;
    }
    is_deaf_ = true;
    give_up_ = is_submitted_ ? std::chrono::steady_clock::time_point::max()
                             : std::chrono::steady_clock::now() + kGiveUpTelling;
    return is_submitted_ || !request_.job_id().empty();
  }

  bool slurm_has_it() {
    const auto now = std::chrono::steady_clock::now();
    if (now < ask_slurm_) return true;
    ask_slurm_ = now + kAskSlurm;
    const auto ask = [](const std::vector<std::string>& words) {
      std::vector<char*> environment;
      for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
      environment.push_back(nullptr);
      return slurm::output_of(words, environment);
    };
    return slurm::has_job(ask, std::to_string(request_.slurm_job_id())).value_or(true);
  }

  void take_lines() {
    for (std::size_t end = heard_.find('\n'); end != std::string::npos; end = heard_.find('\n')) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      if (line.starts_with("job ")) request_.set_job_id(line.substr(4));
      if (line.starts_with("slurm ")) {
        request_.set_slurm_job_id(slurm_id(line.c_str() + 6));
        is_submitted_ = request_.slurm_job_id() != 0;
      }
    }
  }

  int leave(const char* why) {
    if (!is_known_) return cli::kFailed;
    // Another one may have begun it since.
    if (const std::optional<int> status = ask_once()) return *status;
    v1::EndPlacementRequest end;
    end.set_id(request_.id());
    end.set_reason(why);
    // What can't be told now the manager finds out: nobody asks for it any more.
    call(options_.manager, *stub_, &v1::Cluster::Stub::EndPlacement, end).status().IgnoreError();
    return cli::kFailed;
  }

  PlaceOptions options_;
  std::unique_ptr<v1::Cluster::Stub> stub_;
  v1::PlaceJobRequest request_;
  std::chrono::duration<double> pause_{1};
  std::string heard_, told_;
  bool is_known_ = false;      ///< to the cluster manager
  bool is_placed_ = false;     ///< and said so
  bool is_deaf_ = false;       ///< stdin has ended
  bool is_submitted_ = false;  ///< to Slurm, and nobody waits for it
  std::chrono::steady_clock::time_point ask_slurm_;
  std::chrono::steady_clock::time_point give_up_;
};

}  // namespace

int get_place(PlaceOptions options) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  return Request(std::move(options)).run();
}

}  // namespace plexrl::cluster_tool
