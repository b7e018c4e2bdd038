// SPDX-License-Identifier: MIT
// clearhead attention MODEL --prompt S: the attention of every head, drawn in the terminal.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "core/error.h"
#include "figures/terminal_map.h"
#include "model/run.h"
#include "use/recorder.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  GateFlags gates;
  std::string model, prompt;
  std::int64_t layer = -1;
  bool ascii = false;
};

int TerminalColumns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

void Run(const Options& o) {
  const std::filesystem::path path = FindModel(o.model);
  const Model model = LoadModel(path);
  const ModelConfig& config = model.config;
  if (o.layer >= config.layers)
    Fail("--layer {}: the model has layers 0 to {}", o.layer, config.layers - 1);
  const Tokenizer tokenizer = Tokenizer::Load(path);
  const std::vector<std::int32_t> ids = tokenizer.EncodePrompt(o.prompt);
  const auto T = static_cast<std::int64_t>(ids.size());
  CheckTokens(config, ids, 1, T);

  std::vector<TapId> taps;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (o.layer < 0 || layer == o.layer) taps.push_back({Tap::kPattern, layer});
  }
  Recorder recorder(taps, {}, {});
  const Pass pass{.model = model,
                  .batch = 1,
                  .length = T,
                  .hooks = &recorder,
                  .gates = o.gates.Resolve(config, o.common.seed)};
  Activations activations(config, 1, T, Keep::kNothing, 0);
  ForwardToFinalNorm(pass, ids.data(), activations);

  std::vector<std::string> tokens, labels;
  for (const std::int32_t id : ids) tokens.push_back(tokenizer.TokenText(id));
  std::vector<float> maps;
  for (const auto& [id, tensor] : recorder.values()) {
    for (std::int64_t head = 0; head < config.heads; ++head)
      labels.push_back(fmt::format("L{}H{}", id.layer, head));
    maps.insert(maps.end(), tensor.values.begin(), tensor.values.end());
  }
  if (!o.common.json)
    return Print(TerminalMaps(maps, labels, tokens, {TerminalColumns(), o.ascii}));
  Json heads = Json::object();
  for (std::size_t h = 0; h < labels.size(); ++h) {
    Json rows = Json::array();
    for (std::int64_t q = 0; q < T; ++q) {
      const float* row = maps.data() + (static_cast<std::int64_t>(h) * T + q) * T;
      rows.push_back(std::vector<float>(row, row + q + 1));
    }
    heads[labels[h]] = rows;
  }
  PrintJson({{"tokens", tokens}, {"ids", ids}, {"heads", heads}});
}

}  // namespace

void AddAttention(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "attention", "Show the attention of every head as maps in the terminal",
      "clearhead attention gpt2 --prompt 'The cat sat on the mat' --layer 5", options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  command->add_option("--prompt", options->prompt, "Text to run the model on")->required();
  command->add_option("--layer", options->layer, "Only this layer (default: all)")
      ->check(NonNegativeNumber());
  command->add_flag("--ascii", options->ascii, "Shades in plain ASCII");
  options->gates.Add(command, /*with_weight=*/false);
}

}  // namespace clearhead::cli
