// SPDX-License-Identifier: MIT
// What most files parse anyway, parsed once per library kind. Only a saving: every file includes
// what it uses (`make check` compiles headers and lints sources without it).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
