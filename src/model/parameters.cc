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
  std::vector<ParameterSpec> table = FamilyOf(config).parameters(config);
  if (!config.gate_bias_by_head) return table;
  // Beside what makes the queries, under the same module.
  std::vector<ParameterSpec> biases;
  for (const ParameterSpec& spec : table) {
    if (spec.role != Role::kQkvWeight && spec.role != Role::kQueryWeight) continue;
    const std::size_t layer_name = spec.name.rfind('.');
    const std::size_t module_name = spec.name.rfind('.', layer_name - 1);
    biases.push_back({spec.name.substr(0, module_name) + ".gate_bias",
                      {config.heads},
                      Role::kGateBias,
                      spec.layer});
  }
  table.insert(table.end(), biases.begin(), biases.end());
  return table;
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
