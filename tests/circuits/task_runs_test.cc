// SPDX-License-Identifier: MIT
#include "circuits/task_runs.h"

#include <gtest/gtest.h>

#include "circuits/circuit_testing.h"
#include "circuits/patching.h"
#include "circuits/task_score.h"

namespace clearhead {
namespace {

TEST(TaskRuns, KeptOrMadeAnewTheyAreTheSame) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kGated), 3);
  const TaskSet set = RandomTask(model.config, 9, 5);
  const TaskRuns kept(model, set), anew(model, set, kTaskBatchRows, /*keep_up_to=*/0);
  EXPECT_EQ(kept.clean_metric(), anew.clean_metric());
  EXPECT_EQ(kept.corrupted_metric(), anew.corrupted_metric());
  EXPECT_NEAR(kept.clean_metric(), ScoreTask(model, set).clean_metric, 2e-5);
  EXPECT_EQ(kept.Clean(0).get(), kept.Clean(0).get());
  EXPECT_NE(anew.Clean(0).get(), anew.Clean(0).get());
  const std::vector<std::int64_t> nodes = HeadsAndMlps(ResidualGraph(model.config));
  EXPECT_EQ(PatchNodes(kept, nodes, {}).effect, PatchNodes(anew, nodes, {}).effect);
}

}  // namespace
}  // namespace clearhead
