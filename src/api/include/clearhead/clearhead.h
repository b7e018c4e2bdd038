// SPDX-License-Identifier: MIT
// All of the library.
#pragma once

#include <clearhead/array.h>
#include <clearhead/command.h>
#include <clearhead/control.h>
#include <clearhead/error.h>
#include <clearhead/model.h>
#include <clearhead/version.h>
