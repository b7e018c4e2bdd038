// SPDX-License-Identifier: MIT
#include "core/gzip.h"

#include <zlib.h>

#include "core/error.h"

namespace clearhead {

std::string Gzip(std::string_view text) {
  z_stream stream = {};
  constexpr int kGzipHeader = 16;
  Check(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzipHeader, 8,
                     Z_DEFAULT_STRATEGY) == Z_OK,
        "zlib starts");
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  Check(text.size() <= 0xffffffffu && out.size() <= 0xffffffffu, "one call is enough");
  const int end = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  Check(end == Z_STREAM_END, "zlib ends");
  return out;
}

}  // namespace clearhead
