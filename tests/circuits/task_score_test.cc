// SPDX-License-Identifier: MIT
#include "circuits/task_score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "circuits/metric_gradient.h"

namespace clearhead {
namespace {

// A side without tokens counts 0, in the metric as in its gradient.
TEST(TaskScore, NoWrongAnswersIsNoDivisionByNothing) {
  const std::vector<float> logits = {0.5f, -1.0f, 2.0f, 0.25f};
  const TaskItem item{.answers = {2, 3}};
  EXPECT_DOUBLE_EQ(TaskMetricOf(item, TaskMetric::kLogitDifference, logits), 1.125);
  const TaskItem nothing;
  EXPECT_EQ(TaskMetricOf(nothing, TaskMetric::kLogitDifference, logits), 0.0);
  EXPECT_EQ(TaskMetricOf(nothing, TaskMetric::kProbabilityDifference, logits), 0.0);
  for (const TaskItem& each : {item, nothing}) {
    for (const TaskMetric metric :
         {TaskMetric::kLogitDifference, TaskMetric::kProbabilityDifference}) {
      std::vector<float> gradient(4);
      MetricGradient(each, metric, logits, gradient);
      const double h = 1e-3;
      for (std::size_t v = 0; v < 4; ++v) {
        std::vector<float> above = logits, below = logits;
        above[v] += static_cast<float>(h);
        below[v] -= static_cast<float>(h);
        EXPECT_NEAR(
            gradient[v],
            (TaskMetricOf(each, metric, above) - TaskMetricOf(each, metric, below)) / (2 * h),
            1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace clearhead
