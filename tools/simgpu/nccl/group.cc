#include "tools/simgpu/nccl/group.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace plexrl::simgpu::nccl {
namespace {

struct Task {
  std::shared_ptr<Communicator> communicator;
  std::function<ncclResult_t()> run;
};

struct Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Operation> operations;
  std::vector<CUstream> streams;
};

struct Collected {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Task> tasks;
  std::vector<Work> work;
};
thread_local Collected group;

ncclResult_t run_tasks(std::vector<Task> tasks) {
  std::vector<ncclResult_t> results(tasks.size(), ncclSuccess);
  std::vector<std::thread> threads;
  ncclResult_t all = ncclSuccess;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!tasks[i].communicator->blocks()) {
      tasks[i].communicator->begin_aside(std::move(tasks[i].run));
      all = ncclInProgress;
    } else if (tasks.size() == 1) {
      results[i] = tasks[i].run();
    } else {
      threads.emplace_back([&, i] { results[i] = tasks[i].run(); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const ncclResult_t result : results) {
    if (result != ncclSuccess) return result;
  }
  return all;
}

}  // namespace

ncclResult_t Group::start() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t Group::end() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return group.error;
  Collected all = std::exchange(group, {});
  if (all.error != ncclSuccess) {
    for (const Task& task : all.tasks) {
      if (!task.communicator->has_met()) task.communicator->close();  // nobody gets it
    }
    return all.error;
  }
  ncclResult_t result = run_tasks(std::move(all.tasks));
  if (result != ncclSuccess && result != ncclInProgress) return result;
  for (const Work& work : all.work) {
    const ncclResult_t launched = work.communicator->launch(work.operations, work.streams);
    if (launched != ncclSuccess) return launched;
  }
  return result;
}

void Group::forget() {
  if (group.depth > 0 && --group.depth == 0) group = {};
}

ncclResult_t Group::add(std::shared_ptr<Communicator> communicator,
                        std::function<ncclResult_t()> task) {
  start();
  group.tasks.push_back({std::move(communicator), std::move(task)});
  return end();
}

ncclResult_t Group::add(std::shared_ptr<Communicator> communicator, const Operation& operation,
                        CUstream stream) {
  start();
  auto found = std::find_if(group.work.begin(), group.work.end(),
                            [&](const Work& work) { return work.communicator == communicator; });
  if (found == group.work.end())
    found = group.work.insert(found, Work{std::move(communicator), {}, {}});
  if (operation.count > 0) found->operations.push_back(operation);
  if (std::find(found->streams.begin(), found->streams.end(), stream) == found->streams.end())
    found->streams.push_back(stream);
  return end();
}

ncclResult_t Group::refuse(ncclResult_t why) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = why;
  return why;
}

}  // namespace plexrl::simgpu::nccl
