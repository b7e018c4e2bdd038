// SPDX-License-Identifier: MIT
// clearhead convert MODEL --dtype T --out DIR: the same model, stored in another type.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "use/convert.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, dtype, out;
};

void Run(const Options& o) {
  const DType dtype = o.dtype == "bf16"  ? DType::kBF16
                      : o.dtype == "f16" ? DType::kF16
                                         : DType::kF32;
  const Conversion c = ConvertModel(FindModel(o.model), o.out, dtype);
  if (o.common.json) {
    return PrintJson({{"out", o.out},
                      {"from", DTypeName(c.from)},
                      {"to", DTypeName(dtype)},
                      {"parameters", c.parameters},
                      {"bytes", c.bytes},
                      {"files", c.files}});
  }
  Print(fmt::format("{}: {} parameters from {} to {}, {:.1f} MB\n", o.out, c.parameters,
                    DTypeName(c.from), DTypeName(dtype), static_cast<double>(c.bytes) / 1e6));
}

}  // namespace

void AddConvert(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "convert",
      "Store a model in 16 bits (half the size), or back in 32. To nearest, ties to even; the\n"
      "tokenizer, the config and the gates are carried over. `compare` tells what it cost.",
      "clearhead convert my-model --dtype bf16 --out my-model-bf16", options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  command->add_option("--dtype", options->dtype, "bf16, f16 or f32")
      ->required()
      ->check(IsMember({"bf16", "f16", "f32"}));
  command->add_option("--out", options->out, "Folder to write")->required();
}

}  // namespace clearhead::cli
