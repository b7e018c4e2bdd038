// SPDX-License-Identifier: MIT
// Attention of a model that is run.
#include <memory>
#include <utility>

#include "heads/attention_source.h"
#include "heads/layer_matrices.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Hands each layer's pattern to a visitor.
class PatternHooks final : public Hooks {
 public:
  PatternHooks(const LayerVisitor& visitor, Activations* activations)
      : visitor_(visitor), activations_(activations) {}

  bool Wants(TapId id) const override { return id.tap == Tap::kPattern; }

  float* Storage(TapId id, const Shape& shape) override { return matrices_.Place(id, shape); }

  void Visit(TapId id, const TensorView<float>& value) override {
    visitor_(id.layer, value.data);
    LayerMatrices::ForgetBefore(id.layer, *activations_);
  }

 private:
  const LayerVisitor& visitor_;
  Activations* activations_;
  LayerMatrices matrices_;
};

}  // namespace

AttentionSource OneSequence(const AttentionSource& source, std::size_t sequence) {
  AttentionSource one = source;
  one.sequences = {source.sequences.at(sequence)};
  one.token = [token = source.token, sequence](std::size_t, std::int64_t position) {
    return token(sequence, position);
  };
  one.visit = [visit = source.visit, sequence](std::size_t, const LayerVisitor& visitor) {
    visit(sequence, visitor);
  };
  return one;
}

AttentionSource AttentionOfModel(const Model& model, const GateRun& gates, std::string label,
                                 std::vector<std::vector<std::int32_t>> sequences,
                                 std::function<std::string(std::int32_t)> token_text) {
  AttentionSource source{
      .label = std::move(label), .layers = model.config.layers, .heads = model.config.heads};
  auto ids = std::make_shared<const std::vector<std::vector<std::int32_t>>>(std::move(sequences));
  for (const auto& sequence : *ids) {
    const auto length = static_cast<std::int64_t>(sequence.size());
    CheckTokens(model.config, sequence, 1, length);
    source.sequences.push_back({length, sequence});
  }
  source.token = [ids, token_text = std::move(token_text)](std::size_t s, std::int64_t position) {
    const std::int32_t id = (*ids)[s][static_cast<std::size_t>(position)];
    return token_text ? token_text(id) : std::to_string(id);
  };
  source.visit = [model, gates, ids](std::size_t s, const LayerVisitor& visitor) {
    const std::vector<std::int32_t>& sequence = (*ids)[s];
    const auto length = static_cast<std::int64_t>(sequence.size());
    Activations activations(model.config, 1, length, Keep::kNothing, 0);
    PatternHooks hooks(visitor, &activations);
    const Pass pass{.model = model, .batch = 1, .length = length, .hooks = &hooks, .gates = gates};
    ForwardToFinalNorm(pass, sequence.data(), activations);
  };
  return source;
}

}  // namespace clearhead
