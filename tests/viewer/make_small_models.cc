// make_small_models FOLDER: a dense and a gated model of one shape, for tests outside C++.
#include "cli/small_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  clearhead::MakeSmallModel(folder / "dense");
  clearhead::MakeSmallModel(folder / "gated", /*gated=*/true);
  return 0;
}
