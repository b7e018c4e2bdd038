#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "model/model.h"

namespace clearhead {
namespace {

std::string_view TorchName(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

}  // namespace

void SaveModel(const Gpt2& model, const std::filesystem::path& directory, DType dtype) {
  MakeDirectory(directory);
  std::vector<TensorToWrite> tensors;
  Gpt2Tensors<const float> weights = model.weights;
  VisitParameters(model.config, weights, [&](const ParameterSpec& spec, const float* data) {
    TensorToWrite tensor{.name = LibraryName(spec), .dtype = dtype, .shape = {}, .data = data};
    for (int axis = 0; axis < spec.shape.rank(); ++axis) tensor.shape.push_back(spec.shape[axis]);
    tensors.push_back(std::move(tensor));
  });
  WriteSafetensors(directory / "model.safetensors", tensors, {{"format", "pt"}});
  WriteJsonFile(directory / "config.json", ToJson(model.config, TorchName(dtype)));
}

}  // namespace clearhead
