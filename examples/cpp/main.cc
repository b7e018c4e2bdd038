// SPDX-License-Identifier: MIT
// look_at_heads MODEL TEXT: where each head of the last token looks, what the model expects next,
// and what it expects when the head that looks furthest back is switched off.
#include <clearhead/clearhead.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace ch = clearhead::api;

namespace {

struct Look {
  std::int64_t layer = 0, head = 0, key = 0;
  float weight = 0.0f;
};

// The key that each head's last query reads most.
std::vector<Look> LastLooks(const ch::Model& model, const ch::Run& run) {
  std::vector<Look> looks;
  for (std::int64_t layer = 0; layer < model.info().layers; ++layer) {
    const ch::Array& pattern =
        run.taps.at("blocks." + std::to_string(layer) + ".attn.hook_pattern");
    const std::int64_t heads = pattern.shape[1], length = pattern.shape[2];
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* row = pattern.data + (head * length + length - 1) * length;
      Look look{layer, head};
      for (std::int64_t key = 0; key < length; ++key) {
        if (row[key] > look.weight) look = {layer, head, key, row[key]};
      }
      looks.push_back(look);
    }
  }
  return looks;
}

void Print(const char* title, const ch::Model& model, const ch::Run& run) {
  const float* last = run.logits.data + (run.length - 1) * model.info().vocabulary;
  std::int32_t best = 0;
  for (std::int32_t id = 1; id < model.info().vocabulary; ++id) {
    if (last[id] > last[best]) best = id;
  }
  std::printf("%s: '%s' (logit %.3f)\n", title, model.TokenText(best).c_str(), last[best]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: look_at_heads MODEL TEXT\n");
    return 2;
  }
  try {
    const ch::Model model = ch::Model::Load(argv[1]);
    const std::vector<std::int32_t> ids = model.Encode(argv[2]);
    const ch::Run run = model.Run(ids, {.taps = "blocks.*.attn.hook_pattern"});
    Look furthest{.key = run.length};
    for (const Look& look : LastLooks(model, run)) {
      std::printf("L%dH%d looks at '%s' (%.3f)\n", static_cast<int>(look.layer),
                  static_cast<int>(look.head),
                  model.TokenText(run.ids[static_cast<std::size_t>(look.key)]).c_str(),
                  look.weight);
      if (look.key < furthest.key && look.weight > 0.1f) furthest = look;
    }
    Print("expects", model, run);
    const ch::Intervention off{.tap = "blocks." + std::to_string(furthest.layer) + ".attn.hook_z",
                               .heads = {furthest.head}};
    Print("without that head", model, model.Run(ids, {.interventions = {off}}));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "look_at_heads: %s\n", error.what());
    return 1;
  }
}
