// rlvr: a small, honest job of reinforcement learning with verifiable rewards, on the CUDA driver
// API alone.
//
// Each step a policy samples answers to generated tasks (rollout, GPU), a verifier scores them
// (tool, CPU), and a policy-gradient update with Adam learns from the scores (train, GPU). Standard
// output is the same in every run with the same options on one device; it ends with a digest over
// all device memory that the job has allocated.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/workloads/rlvr/device.h"
#include "tests/workloads/rlvr/options.h"
#include "tests/workloads/rlvr/ranks.h"
#include "tests/workloads/rlvr/tasks.h"
#include "tests/workloads/rlvr/trainer.h"

namespace plexrl::workloads::rlvr {
namespace {

constexpr double kBusyMs = 10;  // of device time between two looks for --until's file

using Clock = std::chrono::steady_clock;

/// Adds up how long the calls that use the device took: alone, that is how long the device was
/// busy.
class DeviceTime {
 public:
  template <typename Function>
  auto during(Function function) {
    const Clock::time_point start = Clock::now();
    auto result = function();
    sum_ += Clock::now() - start;
    return result;
  }
  double seconds() const { return std::chrono::duration<double>(sum_).count(); }

 private:
  Clock::duration sum_{};
};

void run(const Options& options) {
  const Clock::time_point start = Clock::now();
  DeviceTime device_time;
  const Sizes sizes;
  Device device(options.device);
  Trainer trainer(device, sizes, options.seed, options.state_bytes);
  std::printf("%s: %d answers to choose from, chance %.3f, %zu bytes on the device\n",
              options.name.c_str(), sizes.modulus, 1.0 / sizes.modulus, device.allocated_bytes());
  for (int step = 0; step < options.steps; ++step) {
    const std::vector<Prompt> prompts =
        make_prompts(sizes.modulus, sizes.prompts, options.seed, step);
    const std::vector<int> answers = device_time.during(
        [&] { return trainer.rollout(prompts, step, to_ns(options.rollout_ms)); });
    const Scores scores = verify(sizes.modulus, prompts, answers, sizes.samples);
    std::this_thread::sleep_for(std::chrono::nanoseconds(to_ns(options.tool_ms)));
    const std::string policy = device_time.during([&] {
      trainer.train(scores.advantages, step, to_ns(options.train_ms));
      return device.digest(trainer.params()).substr(0, 16);
    });
    std::printf("%s: step %d/%d reward %.3f policy %s\n", options.name.c_str(), step + 1,
                options.steps, scores.mean_reward,
                device.digest(trainer.params()).substr(0, 16).c_str());
    std::fflush(stdout);
    while (!options.until.empty() && !std::filesystem::exists(options.until)) {
      device.hold(to_ns(kBusyMs));
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("digest: %s\n", device.digest().c_str());
  if (options.times) {
    std::fprintf(stderr, "{\"steps_s\":%.6f,\"device_s\":%.6f}\n", seconds, device_time.seconds());
  }
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "A small RL job with verifiable rewards. Example: rlvr --steps 16 --state-bytes 256MiB "
      "--tool-ms 500");
  app.option_defaults()->always_capture_default();
  app.add_option("--name", options.name, "printed in front of each line");
  app.add_option("--steps", options.steps, "rollout, verify, train")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed, "of tasks, policy, sampling and state");
  app.add_option("--state-bytes", options.state_bytes,
                 "padding that is updated in every step; units as in 256MiB")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--rollout-ms", options.rollout_ms, "device time of a rollout")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tool-ms", options.tool_ms, "time without the device in a step")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--train-ms", options.train_ms, "device time of training in a step")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", options.device, "ordinal, of the first rank")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--ranks", options.ranks, "processes that train, each on a device, by NCCL")
      ->check(CLI::PositiveNumber);
  app.add_flag("--disaggregated", options.disaggregated,
               "as many more processes and devices sample, with weights by a broadcast");
  app.add_option("--until", options.until,
                 "after the first step, keep the device busy until this file exists");
  app.add_flag("--times", options.times,
               "on stderr at the end: seconds of all steps, and of those in device calls");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.ranks > 1 || options.disaggregated) return run_in_ranks(options);
  run(options);
  return 0;
}

}  // namespace
}  // namespace plexrl::workloads::rlvr

int main(int argc, char** argv) {
  try {
    return plexrl::workloads::rlvr::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rlvr: %s\n", error.what());
    return 1;
  }
}
