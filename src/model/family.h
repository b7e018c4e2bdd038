// SPDX-License-Identifier: MIT
// A family of models: how its config.json is read and written, and which tensors it stores. One
// file each in families/; nothing else knows one by name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/linear.h"
#include "model/config_fields.h"
#include "model/parameters.h"

namespace clearhead {

struct Family {
  std::string_view model_type;    // in config.json
  std::string_view architecture;  // the library's name for the language model
  std::string_view prefix;        // of the body's tensors in the library's files
  Order order;                    // how its matrices are stored
  // Fills what the fields say; those all families share are read by the caller.
  void (*read)(ConfigFields& fields, ModelConfig* config);
  // Adds the family's fields.
  void (*write)(const ModelConfig& config, Json* json);
  std::vector<ParameterSpec> (*parameters)(const ModelConfig& config);
  // Whether files hold a tensor of this name (without prefix) that is no parameter.
  bool (*ignores)(std::string_view name);
};

// The first one is what a config without a family means.
std::span<const Family* const> Families();
const Family& FamilyOf(const ModelConfig& config);
// The family of a config.json's model_type, null if there is none.
const Family* FindFamily(std::string_view model_type);

}  // namespace clearhead
