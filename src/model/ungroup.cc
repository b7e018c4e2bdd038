// SPDX-License-Identifier: MIT
#include "model/ungroup.h"

#include <algorithm>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "model/family.h"

namespace clearhead {
namespace {

struct Storage {
  std::shared_ptr<const void> base;
  std::vector<Buffer<float>> repeated;
};

bool IsKeyOrValue(Role role) {
  return role == Role::kKeyWeight || role == Role::kKeyBias || role == Role::kValueWeight ||
         role == Role::kValueBias;
}

}  // namespace

Model Ungroup(const Model& model) {
  const ModelConfig& config = model.config;
  if (config.kv_heads() == config.heads) return model;
  Check(FamilyOf(config).order == Order::kOutIn, "heads that share keys are rows of a matrix");
  const std::int64_t D = config.head_size(), share = config.heads / config.kv_heads();
  auto storage = std::make_shared<Storage>();
  storage->base = model.storage;
  Model apart = model;
  apart.packed = nullptr;  // other weights
  apart.config.key_value_heads = config.heads;
  VisitParameters(config, apart.weights, [&](const ParameterSpec& spec, Weight& slot) {
    const bool whole_norm =
        spec.role == Role::kKeyNorm && config.query_key_norm == QueryKeyNorm::kWhole;
    if (!IsKeyOrValue(spec.role) && !whole_norm) return;
    // Rows (or values) of a head are contiguous: repeat them for each head of the group.
    const std::int64_t of_head = D * (spec.shape.rank() == 2 ? config.width : 1);
    Buffer<float>& values = storage->repeated.emplace_back(config.heads * of_head);
    for (std::int64_t h = 0; h < config.heads; ++h) {
      slot.CopyTo(h / share * of_head, of_head, values.data() + h * of_head);
    }
    slot = Weight(values.data());
  });
  apart.storage = std::move(storage);
  return apart;
}

}  // namespace clearhead
