// SPDX-License-Identifier: MIT
// Matrices of few entries a row, and their products with tables of long rows: what the decoder of a
// transcoder is. Nothing here is dense in the columns.
//
//   decode              y[r]       += sum over entries (r, f, a) of  a table[f]
//   backward, values    d_a        =  dy[r] . table[f]        one feature f, the rows where it
//   fires backward, table     d_table[f] += sum over these rows of  a dy[r]
//
// Sums are made in the entries' order, so bits do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clearhead {

// The entries of row r are [begin[r], begin[r+1]), columns ascending.
struct SparseRows {
  std::vector<std::int64_t> begin = {0};  // [rows + 1]
  std::vector<std::int32_t> column;
  std::vector<float> value;

  std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  std::int64_t size() const { return static_cast<std::int64_t>(column.size()); }
};

// The same entries by column: those of column f are [begin[f], begin[f+1]), rows ascending.
struct SparseColumns {
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> row;
  std::vector<std::int64_t> entry;  // where it is in SparseRows
};

// Rows of a table or a dense matrix, `stride` elements apart.
template <typename T>
struct TableOf {
  T* data;
  std::int64_t stride;
};

// Replaces `out` by what of x[rows, columns] lies above its column's threshold (null: above 0).
void SelectAbove(std::int64_t rows, std::int64_t columns, const float* x, const float* threshold,
                 SparseRows& out);

// Entries of a matrix that is looked at part by part.
struct FoundEntries {
  std::vector<std::int32_t> row, column;
  std::vector<float> value;
  std::int64_t count = 0;  // of them; the vectors are longer
};

// A part of a matrix: x[rows, columns], rows `stride` apart.
struct MatrixPart {
  std::int64_t first_row, rows, first_column, columns;
  const float* x;
  std::int64_t stride;
};

// Appends what of a part lies above its column's threshold; `threshold` is of the whole matrix.
void FindAbove(const MatrixPart& part, const float* threshold, FoundEntries& found);

// Replaces `out` by what was found; within a row in the order in which it was.
void SortByRow(const FoundEntries& found, std::int64_t rows, SparseRows& out);

// Replaces `out` by the k largest values of each row of x[rows, columns], whatever their sign;
// among equals the first.
void SelectLargest(std::int64_t rows, std::int64_t columns, std::int64_t k, const float* x,
                   SparseRows& out);

// The rows of `from` after those of `to`.
void AppendRows(const SparseRows& from, SparseRows& to);

void ByColumn(const SparseRows& rows, std::int64_t columns, SparseColumns& out);

// y[r, length] += entries times table[f, length].
void DecodeRows(const SparseRows& entries, std::int64_t length, TableOf<const float> table,
                TableOf<float> y);

// dots[i] = vector[length] . table[rows[i]], on the calling thread.
void DotsWithRows(std::span<const std::int32_t> rows, std::int64_t length, const float* vector,
                  TableOf<const float> table, float* dots);

// Both: dots as above, and sum[length] += sum over i of factor[i] table[rows[i]]. The rows, which
// lie anywhere, are read once.
void DotsAndSums(std::span<const std::int32_t> rows, std::int64_t length, const float* vector,
                 const float* factor, TableOf<const float> table, float* dots, float* sum);

// sum[length] += sum over i of factor[i] table[rows[i]], on the calling thread.
void AddScaledRows(std::span<const std::int32_t> rows, const float* factor, std::int64_t length,
                   TableOf<const float> table, float* sum);

}  // namespace clearhead
