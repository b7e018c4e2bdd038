// SPDX-License-Identifier: MIT
// Gated attention, fused and in stages, against values of the peer implementation (tests/data/
// sparse-attention: sparse_attention_naive of hrpan/splash_attention in float64).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "kernels/attention.h"
#include "kernels/attention_stages.h"
#include "kernels/gated_attention.h"
#include "kernels/gated_attention_stages.h"
#include "support/golden.h"

namespace clearhead {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(CLEARHEAD_TEST_DATA) / "sparse-attention";

// The files hold [B,H,T,D]; the kernels read [B,T,H*D].
std::vector<float> HeadsInside(const GoldenTensor& tensor) {
  const std::int64_t B = tensor.shape[0], H = tensor.shape[1], T = tensor.shape[2],
                     D = tensor.shape[3];
  std::vector<float> out(tensor.values.size());
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t t = 0; t < T; ++t) {
        const float* from = tensor.values.data() + ((b * H + h) * T + t) * D;
        std::copy(from, from + D, out.data() + ((b * T + t) * H + h) * D);
      }
    }
  }
  return out;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    json_ = ReadJsonFile(kFolder / (GetParam() + ".json"));
    tensors_ = ReadGolden(kFolder / (GetParam() + ".safetensors"));
    const Json& shape = json_["shape"];
    shape_ = {.batch = shape["B"],
              .heads = shape["H"],
              .queries = shape["T"],
              .keys = shape["T"],
              .head_size = shape["D"],
              .scale = static_cast<float>(1 / std::sqrt(shape["D"].get<double>()))};
    q_ = HeadsInside(tensors_["q"]);
    k_ = HeadsInside(tensors_["k"]);
    v_ = HeadsInside(tensors_["v"]);
    dz_ = HeadsInside(tensors_["r"]);
    for (float& x : dz_) x *= json_["w1"].get<float>();
    // The objective has w2 * sum of p, and p averages over the causal pairs of one head.
    penalty_ = static_cast<float>(json_["w2"].get<double>() / static_cast<double>(pairs()));
  }
  std::int64_t pairs() const { return shape_.queries * (shape_.queries + 1) / 2; }
  std::int64_t heads() const { return shape_.batch * shape_.heads; }
  template <typename T>
  HeadRows<T> Rows(T* data) const {
    const std::int64_t channels = shape_.heads * shape_.head_size;
    return {data, channels, shape_.queries * channels};
  }
  HeadRows<const float> In(const std::vector<float>& values) const { return Rows(values.data()); }

  void ExpectCase(const std::string& key, const std::vector<float>& z, const std::vector<float>& dq,
                  const std::vector<float>& dk, const std::vector<float>& dv) {
    EXPECT_LT(MaxAbsDifference(z, HeadsInside(tensors_[key + ".y"])), 1e-5) << key;
    EXPECT_LT(MaxRelativeDifference(dq, HeadsInside(tensors_[key + ".dq"])), 5e-6) << key;
    EXPECT_LT(MaxRelativeDifference(dk, HeadsInside(tensors_[key + ".dk"])), 5e-6) << key;
    EXPECT_LT(MaxRelativeDifference(dv, HeadsInside(tensors_[key + ".dv"])), 5e-6) << key;
  }
  void ExpectStatistics(const Json& test_case, const std::vector<std::int64_t>& edges,
                        const std::vector<double>& probability) {
    for (std::int64_t head = 0; head < heads(); ++head) {
      const std::size_t b = static_cast<std::size_t>(head / shape_.heads);
      const std::size_t h = static_cast<std::size_t>(head % shape_.heads);
      const std::size_t n = static_cast<std::size_t>(head);
      EXPECT_EQ(edges[n], test_case["edge_count"][b][h].get<std::int64_t>());
      EXPECT_NEAR(probability[n] / static_cast<double>(pairs()), test_case["p"][b][h].get<double>(),
                  2e-7);
    }
  }
  GateOptions Gate(const Json& test_case) {
    return {.mode = test_case["sample"] ? GateMode::kSampled : GateMode::kHard,
            .bias = test_case["gate_bias"].get<float>(),
            .uniform = tensors_["u"].values.data()};
  }

  Json json_;
  std::map<std::string, GoldenTensor> tensors_;
  AttentionShape shape_;
  std::vector<float> q_, k_, v_, dz_;
  float penalty_ = 0;
};

TEST_P(Golden, Fused) {
  ASSERT_GE(json_["cases"].size(), 4u);
  for (const Json& test_case : json_["cases"]) {
    const GateOptions gate = Gate(test_case);
    const AttentionInput input{.q = In(q_), .k = In(k_), .v = In(v_)};
    std::vector<float> z(q_.size()), dq(q_.size()), dk(q_.size()), dv(q_.size());
    std::vector<float> log_sum_exp(static_cast<std::size_t>(heads() * shape_.queries));
    std::vector<std::int64_t> edges(static_cast<std::size_t>(heads()));
    std::vector<double> probability(edges.size());
    GatedAttentionForward(shape_, input, gate, Rows(z.data()), log_sum_exp.data(),
                          {.open_edges = edges.data(), .probability_sum = probability.data()});
    GatedAttentionBackward(shape_, input, gate, penalty_,
                           {.z = In(z), .log_sum_exp = log_sum_exp.data()}, In(dz_),
                           {.dq = Rows(dq.data()), .dk = Rows(dk.data()), .dv = Rows(dv.data())});
    ExpectCase(test_case["key"], z, dq, dk, dv);
    ExpectStatistics(test_case, edges, probability);
  }
}

TEST_P(Golden, Staged) {
  for (const Json& test_case : json_["cases"]) {
    const std::string key = test_case["key"];
    const GateOptions gate = Gate(test_case);
    const std::size_t size = tensors_["u"].values.size();
    std::vector<float> scores(size), pattern(size), mask(size), gate_probability(size),
        weights(size);
    std::vector<float> dmatrix(size);
    std::vector<float> z(q_.size()), dq(q_.size()), dk(q_.size()), dv(q_.size());
    std::vector<std::int64_t> edges(static_cast<std::size_t>(heads()));
    std::vector<double> probability(edges.size());

    AttentionScores(shape_, In(q_), In(k_), scores.data());
    CausalSoftmax(shape_, scores.data(), pattern.data());
    GateMask(shape_, gate, scores.data(), mask.data(), gate_probability.data(),
             {.open_edges = edges.data(), .probability_sum = probability.data()});
    ApplyGate(shape_, pattern.data(), mask.data(), weights.data());
    AttentionApply(shape_, weights.data(), In(v_), Rows(z.data()));

    AttentionApplyBackward(shape_, weights.data(), In(v_), In(dz_), dmatrix.data(),
                           Rows(dv.data()));
    GateBackward(shape_, gate,
                 {.scores = scores.data(), .pattern = pattern.data(), .mask = mask.data()},
                 dmatrix.data(), penalty_, dmatrix.data());
    AttentionScoresBackward(shape_, In(q_), In(k_), dmatrix.data(), Rows(dq.data()),
                            Rows(dk.data()));

    ExpectCase(key, z, dq, dk, dv);
    ExpectStatistics(test_case, edges, probability);
    const std::string adjacency = key + (test_case["sample"] ? ".edges" : ".adj");
    EXPECT_EQ(mask, tensors_[adjacency].values) << key;
    double sum = 0;
    for (const float p : gate_probability) sum += p;
    double expected = 0;
    for (const double p : probability) expected += p;
    EXPECT_NEAR(sum, expected, 1e-6 * expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::Values("b1h2t16d8", "b2h3t33d16", "b1h4t64d64"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace clearhead
