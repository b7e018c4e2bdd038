// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "cli/program.h"

namespace clearhead {
namespace {

TEST(BenchCommand, OneTaskTimesEveryRun) {
  const Json json = SucceedJson({"bench", "--task", "dense-attention", "--runs", "2"});
  EXPECT_EQ(json["task"], "dense-attention");
  ASSERT_EQ(json["seconds"].size(), 2u);
  EXPECT_GT(json["seconds"][0].get<double>(), 0.0);
}

TEST(BenchCommand, OneLineForWhatCannotBe) {
  ExpectFailure({"bench", "--task", "sleep"}, 1, {"'sleep'", "dense-step-256", "decoding"});
  ExpectFailure({"bench", "--task", "decoding", "--full"}, 2, {"--task", "--full"});
  ExpectFailure({"bench", "--runs", "2"}, 2, {"--runs", "--task"});
  ExpectFailure({"bench", "--task", "decoding", "--runs", "0"}, 2, {"--runs"});
}

}  // namespace
}  // namespace clearhead
