// SPDX-License-Identifier: MIT
#include "model/parameters.h"

#include "model/family.h"

namespace clearhead {

bool IsNormWeight(Role role) {
  return role == Role::kFinalNormWeight || role == Role::kAttentionNormWeight ||
         role == Role::kMlpNormWeight || role == Role::kQueryNorm || role == Role::kKeyNorm;
}

bool IsAttention(Role role) { return role >= Role::kQkvWeight && role <= Role::kProjectionBias; }

bool WritesToStream(Role role) {
  return role == Role::kProjectionWeight || role == Role::kMlpOutWeight;
}

std::vector<ParameterSpec> ParameterTable(const ModelConfig& config) {
  return FamilyOf(config).parameters(config);
}

std::string LibraryName(const ModelConfig& config, const ParameterSpec& spec) {
  if (spec.role == Role::kOutput) return spec.name;
  return std::string(FamilyOf(config).prefix) + spec.name;
}

ModelValues BindContiguous(const ModelConfig& config, float* block) {
  ModelValues tensors;
  VisitParameters(config, tensors, [&](const ParameterSpec& spec, float*& slot) {
    slot = block;
    block += spec.shape.size();
  });
  return tensors;
}

ModelWeights BindWeights(const ModelConfig& config, const float* block) {
  ModelWeights tensors;
  VisitParameters(config, tensors, [&](const ParameterSpec& spec, Weight& slot) {
    slot = Weight(block);
    block += spec.shape.size();
  });
  return tensors;
}

}  // namespace clearhead
