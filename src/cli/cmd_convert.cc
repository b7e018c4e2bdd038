// SPDX-License-Identifier: MIT
// clearhead convert MODEL --dtype T --out DIR: the same model, stored in another type; or another
// project's file as a folder.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "core/error.h"
#include "use/convert.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, dtype, tokenizer, out;
};

void Run(const Options& o) {
  const DType dtype = o.dtype == "bf16"  ? DType::kBF16
                      : o.dtype == "f16" ? DType::kF16
                                         : DType::kF32;
  std::error_code error;
  const bool foreign = std::filesystem::is_regular_file(o.model, error);
  if (!foreign && o.dtype.empty()) FailUsage("--dtype is required for a model folder");
  if (!foreign && !o.tokenizer.empty()) {
    FailUsage("--tokenizer goes with a file of another project; a model folder has its own");
  }
  const std::filesystem::path from = foreign ? std::filesystem::path(o.model) : FindModel(o.model);
  const Conversion c = ConvertModel(from, o.out, dtype, o.tokenizer);
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
      "tokenizer, the config and the gates are carried over. `compare` tells what it cost.\n"
      "A llama2.c checkpoint (.bin, legacy or version 1) or a GGUF file (Llama in F32, F16, BF16, "
      "Q8_0)\n"
      "becomes a Hugging Face folder.",
      "clearhead convert my-model --dtype bf16 --out my-model-bf16", options, Run);
  command
      ->add_option("MODEL", options->model,
                   "Folder or name of a model, a llama2.c checkpoint or a GGUF file")
      ->required();
  command->add_option("--tokenizer", options->tokenizer,
                      "llama2.c's tokenizer.bin that belongs to the checkpoint");
  command
      ->add_option("--dtype", options->dtype,
                   "bf16, f16 or f32 (a checkpoint of another project: f32)")
      ->check(IsMember({"bf16", "f16", "f32"}));
  command->add_option("--out", options->out, "Folder to write")->required();
}

}  // namespace clearhead::cli
