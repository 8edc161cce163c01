#include "tools/top/keys.h"

#include <algorithm>

#include "tools/ctl/answer.h"

namespace plexrl::top {
namespace {

using ctl::text_of;

constexpr std::size_t kLongestTyped = 64;

// The job `steps` below the marked one, or above it.
void choose(int steps, const Json& status, View& view) {
  const auto jobs = jobs_shown(status, view);
  if (jobs.empty()) return;
  const std::string now = chosen_id(jobs, view);
  const auto found = std::find_if(jobs.begin(), jobs.end(),
                                  [&](const Json& job) { return text_of(job, "id") == now; });
  const auto place = std::clamp<std::ptrdiff_t>(found - jobs.begin() + steps, 0,
                                                static_cast<std::ptrdiff_t>(jobs.size()) - 1);
  view.chosen = text_of(jobs[static_cast<std::size_t>(place)], "id");
}

const Json* chosen_job(const std::vector<Json>& jobs, const View& view) {
  const std::string id = chosen_id(jobs, view);
  for (const Json& job : jobs) {
    if (text_of(job, "id") == id) return &job;
  }
  return nullptr;
}

bool is_paused(const Json& job) {
  const auto paused = job.find("paused");
  return paused != job.end() && paused->is_boolean() && paused->get<bool>();
}

Wish pause_or_resume(const Json& job) {
  const char* verb = is_paused(job) ? "resume" : "pause";
  return {.request = Json{{"verb", verb}, {"job", text_of(job, "id")}},
          .done = text_of(job, "name") + ": " + verb + "d"};
}

}  // namespace

Wish Keys::press(int key, const Json& status, View& view) {
  view.message.clear();
  if (view.shows_help) {
    view.shows_help = false;
    return {};
  }
  return typing_ == Typing::kNothing ? command(key, status, view) : type(key, view);
}

void Keys::show_typed(View& view) const {
  view.prompt =
      (typing_ == Typing::kFilter ? "show only jobs with: " : "priority, 0 to 100: ") + typed_;
}

Wish Keys::command(int key, const Json& status, View& view) {
  const auto jobs = jobs_shown(status, view);
  const Json* job = chosen_job(jobs, view);
  switch (key) {
    case 'q':
      return {.quits = true};
    case kUp:
    case 'k':
      choose(-1, status, view);
      return {};
    case kDown:
    case 'j':
      choose(1, status, view);
      return {};
    case 's':
      view.order =
          static_cast<Order>((static_cast<std::size_t>(view.order) + 1) % order_names().size());
      return {};
    case 'r':
      view.is_reversed = !view.is_reversed;
      return {};
    case '?':
    case 'h':
      view.shows_help = true;
      return {};
    case kEscape:
      view.filter.clear();
      return {};
    case '/':
      typing_ = Typing::kFilter;
      typed_ = view.filter;
      show_typed(view);
      return {};
    default:
      break;
  }
  if (key != 'p' && key != 'n') return {};
  if (job == nullptr) {
    view.message = "no job is marked";
    return {};
  }
  if (key == 'p') return pause_or_resume(*job);
  typing_ = Typing::kPriority;
  typed_.clear();
  job_ = text_of(*job, "id");
  show_typed(view);
  return {};
}

Wish Keys::type(int key, View& view) {
  const Typing typing = typing_;
  if (key == kEscape || key == kEnter) {
    typing_ = Typing::kNothing;
    view.prompt.clear();
    if (key == kEscape) return {};
    if (typing == Typing::kFilter) {
      view.filter = typed_;
      return {};
    }
    const int priority = typed_.empty() || typed_.size() > 3 ? -1 : std::stoi(typed_);
    if (priority < 0 || priority > 100) {
      view.message = "a priority is a number from 0 (last) to 100 (first); nothing was changed";
      return {};
    }
    return {.request = Json{{"verb", "priority"}, {"job", job_}, {"priority", priority}},
            .done = "priority " + typed_};
  }
  if (key == kBackspace) {
    if (!typed_.empty()) typed_.pop_back();
  } else if (key >= ' ' && key < 0x7F && typed_.size() < kLongestTyped &&
             (typing == Typing::kFilter || (key >= '0' && key <= '9'))) {
    typed_ += static_cast<char>(key);
  }
  show_typed(view);
  return {};
}

}  // namespace plexrl::top
