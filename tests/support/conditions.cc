// SPDX-License-Identifier: MIT
#include "support/conditions.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "support/with_threads.h"

namespace clearhead {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Highway's bits are ordered: a better instruction set has a lower one.
std::int64_t TargetsUpTo(const std::string& name) {
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    if (name == hwy::TargetName(target)) return rest;
  }
  return 0;
}

// The command with the variable's value for `option`, where the variable is set.
std::vector<std::string> With(const std::string& option, const char* variable,
                              std::vector<std::string> command) {
  const std::string value = Variable(variable);
  if (value.empty()) return command;
  const auto given = std::find(command.begin(), command.end(), option);
  if (given == command.end()) {
    command.insert(command.end(), {option, value});
  } else {
    *(given + 1) = value;
  }
  return command;
}

class Conditions final : public testing::Environment {
 public:
  void SetUp() override {
    const std::string target = Variable("CLEARHEAD_TEST_TARGET");
    if (!target.empty()) {
      const std::int64_t targets = TargetsUpTo(target);
      ASSERT_NE(targets, 0) << "this CPU or Highway has no target " << target;
      hwy::SetSupportedTargetsForTest(targets);
      hwy::GetChosenTarget().DeInit();
    }
    const std::string threads = Variable("CLEARHEAD_TEST_THREADS");
    if (!threads.empty()) threads_.emplace(std::stoi(threads));
  }
  void TearDown() override { threads_.reset(); }

 private:
  std::optional<UseThreads> threads_;
};

const testing::Environment* const kConditions =
    testing::AddGlobalTestEnvironment(new Conditions);  // GoogleTest owns it

}  // namespace

std::uint64_t TestSeed() {
  const std::string seed = Variable("CLEARHEAD_TEST_SEED");
  return seed.empty() ? 1 : std::stoull(seed);
}

std::vector<std::string> UnderConditions(std::vector<std::string> command) {
  return With("--seed", "CLEARHEAD_TEST_SEED", UnderThreads(std::move(command)));
}

std::vector<std::string> UnderThreads(std::vector<std::string> command) {
  return With("--threads", "CLEARHEAD_TEST_THREADS", std::move(command));
}

}  // namespace clearhead
