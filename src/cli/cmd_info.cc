// SPDX-License-Identifier: MIT
// clearhead info [MODEL]: the machine, the kernels that run on it and why, the model.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/threads.h"
#include "kernels/cpu_features.h"
#include "kernels/kernel_info.h"
#include "model/family.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model;
};

Json MachineJson() {
  const CpuFeatures& cpu = Cpu();
  Json kernels = Json::array();
  for (const KernelChoice& choice : KernelChoices()) {
    kernels.push_back(
        {{"kernel", choice.kernel}, {"runs", choice.runs}, {"reason", choice.reason}});
  }
  return {{"version", Version()},     {"commit", Commit()},
          {"cpu", cpu.model},         {"features", SimdFeatureNames(cpu)},
          {"threads", Threads()},     {"kernels", kernels},
          {"models", ShippedModels()}};
}

Json ModelJson(const std::filesystem::path& path) {
  const Model model = LoadModel(path);
  const ModelConfig& config = model.config;
  Json json = {{"path", path.string()},
               {"family", FamilyOf(config).model_type},
               {"layers", config.layers},
               {"heads", config.heads},
               {"key_value_heads", config.kv_heads()},
               {"head_size", config.head_size()},
               {"width", config.width},
               {"inner", config.inner},
               {"vocabulary", config.vocabulary},
               {"positions", config.positions},
               {"activation", ToText(config.activation)},
               {"tied", config.tied},
               {"attention", config.attention == AttentionKind::kGated ? "gated" : "softmax"},
               {"parameters", config.ParameterCount()},
               {"stored_as", DTypeName(model.stored_as)}};
  if (config.attention == AttentionKind::kGated) {
    json["gate_bias"] = config.gate_bias;
    json["gate_bias_by_head"] = config.gate_bias_by_head;
  }
  return json;
}

void Run(const Options& options) {
  Json json = MachineJson();
  if (!options.model.empty()) json["model"] = ModelJson(FindModel(options.model));
  if (options.common.json) return PrintJson(json);

  std::string text = fmt::format("clearhead {} ({})\n\n", Version(), Commit());
  text +=
      fmt::format("CPU        {}\nfeatures   {}\nthreads    {}\n\n", json["cpu"].get<std::string>(),
                  fmt::join(SimdFeatureNames(Cpu()), " "), Threads());
  for (const KernelChoice& choice : KernelChoices()) {
    text += fmt::format("{:<22} {}\n{:<22} {}\n", choice.kernel, choice.runs, "", choice.reason);
  }
  text += fmt::format("\nmodels     {}\n", fmt::join(ShippedModels(), " "));
  if (json.contains("model")) {
    text += "\n";
    for (const auto& [name, value] : json["model"].items()) {
      text += fmt::format("{:<16}{}\n", name,
                          value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  Print(text);
}

}  // namespace

void AddInfo(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "info", "Tell the CPU's features, which kernels run and why, and a model's summary",
      "clearhead info models/tale", options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model");
}

}  // namespace clearhead::cli
