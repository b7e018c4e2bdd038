// SPDX-License-Identifier: MIT
#include "viewer/page_assets.h"

// page_assets.S puts the files between these.
extern "C" {
extern const char clearhead_page_html[], clearhead_page_html_end[];
extern const char clearhead_page_script[], clearhead_page_script_end[];
extern const char clearhead_page_style[], clearhead_page_style_end[];
}

namespace clearhead {

std::string_view PageHtml() { return {clearhead_page_html, clearhead_page_html_end}; }
std::string_view PageScript() { return {clearhead_page_script, clearhead_page_script_end}; }
std::string_view PageStyle() { return {clearhead_page_style, clearhead_page_style_end}; }

}  // namespace clearhead
