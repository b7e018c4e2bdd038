// SPDX-License-Identifier: MIT
#include "measure/patching_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "core/random.h"

namespace clearhead {
namespace {

struct Timed {
  double seconds, processor_seconds;
  NodeEffects effects;
};

template <typename Call>
Timed Time(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t processor = std::clock();
  NodeEffects effects = call();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const auto ticks = static_cast<double>(std::clock() - processor);
  return {wall.count(), ticks / CLOCKS_PER_SEC, std::move(effects)};
}

}  // namespace

void PatchingTimes::Add(const PatchingTimes& other) {
  prompts += other.prompts;
  heads = other.heads;
  seconds += other.seconds;
  processor_seconds += other.processor_seconds;
  rerun_seconds += other.rerun_seconds;
  rerun_processor_seconds += other.rerun_processor_seconds;
  largest_difference = std::max(largest_difference, other.largest_difference);
}

PatchingTimes TimePatching(const Model& model, const TaskSet& set, std::int64_t every) {
  const std::vector<std::int64_t> heads = ResidualGraph(model.config).AllHeads();
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i < heads.size(); i += static_cast<std::size_t>(every)) {
    some.push_back(heads[i]);
  }
  const Timed plain = Time([&] { return PatchNodes({model, set}, {}, {}); });
  const Timed fast = Time([&] { return PatchNodes({model, set}, heads, {}); });
  const Timed slow = Time([&] { return PatchNodesByRerunning({model, set}, some, {}); });
  const double scale = static_cast<double>(heads.size()) / static_cast<double>(some.size());
  PatchingTimes times{.prompts = static_cast<std::int64_t>(set.items.size()),
                      .heads = static_cast<std::int64_t>(heads.size()),
                      .seconds = fast.seconds,
                      .processor_seconds = fast.processor_seconds};
  const auto to_all = [&](double base, double with_some) {
    return every == 1 ? with_some : base + scale * std::max(0.0, with_some - base);
  };
  times.rerun_seconds = to_all(plain.seconds, slow.seconds);
  times.rerun_processor_seconds = to_all(plain.processor_seconds, slow.processor_seconds);
  for (const std::int64_t head : some) {
    const auto at = static_cast<std::size_t>(head);
    times.largest_difference = std::max(
        times.largest_difference, std::abs(fast.effects.effect[at] - slow.effects.effect[at]));
  }
  return times;
}

TaskSet RandomTwins(const ModelConfig& config, std::int64_t count, std::int64_t length) {
  TaskSet set{.name = "random"};
  std::uint64_t n = 0;
  const auto token = [&] {
    return static_cast<std::int32_t>(Mix64(n++) % static_cast<std::uint64_t>(config.vocabulary));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    TaskItem item{.answers = {token()}, .wrongs = {token()}};
    item.clean.assign(1, token());
    item.corrupted = item.clean;
    for (std::int64_t t = 1; t < length; ++t) {
      item.clean.push_back(token());
      item.corrupted.push_back((item.clean.back() + 1) %
                               static_cast<std::int32_t>(config.vocabulary));
    }
    set.items.push_back(std::move(item));
  }
  return set;
}

}  // namespace clearhead
