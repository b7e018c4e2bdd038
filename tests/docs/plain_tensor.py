# SPDX-License-Identifier: MIT
"""Tensors as flat lists, with just the torch operations that docs/python.md uses, in double.

torch itself is too large a dependency for a test of two code blocks.
"""

import math


class Tensor:
    def __init__(self, values, shape):
        self.values, self.shape = list(values), tuple(shape)
        assert len(self.values) == math.prod(self.shape), (len(self.values), shape)

    def _strides(self):
        return [math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]

    def permute(self, *axes):
        shape, strides = [self.shape[a] for a in axes], [self._strides()[a] for a in axes]

        def walk(axis, offset):
            if axis == len(shape):
                yield self.values[offset]
                return
            for i in range(shape[axis]):
                yield from walk(axis + 1, offset + i * strides[axis])

        return Tensor(walk(0, 0), shape)

    def transpose(self, a, b):
        axes = list(range(len(self.shape)))
        axes[a], axes[b] = axes[b], axes[a]
        return self.permute(*axes)

    def reshape(self, *shape):
        if shape == (-1,):
            shape = (len(self.values),)
        return Tensor(self.values, shape)

    def repeat_interleave(self, count, axis):
        step = math.prod(self.shape[axis + 1:])
        out = []
        for start in range(0, len(self.values), step):
            out += self.values[start:start + step] * count
        return Tensor(out, self.shape[:axis] + (self.shape[axis] * count,) + self.shape[axis + 1:])

    def __matmul__(self, other):
        n, k = self.shape[-2:]
        m = other.shape[-1]
        assert self.shape[:-2] == other.shape[:-2] and other.shape[-2] == k
        out = []
        for batch in range(math.prod(self.shape[:-2])):
            a, b = self.values[batch * n * k:(batch + 1) * n * k], other.values[batch * k * m:(batch + 1) * k * m]
            for i in range(n):
                for j in range(m):
                    out.append(sum(a[i * k + x] * b[x * m + j] for x in range(k)))
        return Tensor(out, self.shape[:-1] + (m,))

    def _each(self, other, f):
        if not isinstance(other, Tensor):
            return Tensor((f(x, other) for x in self.values), self.shape)
        assert self.shape[len(self.shape) - len(other.shape):] == other.shape  # broadcast over leading axes
        n = len(other.values)
        return Tensor((f(x, other.values[i % n]) for i, x in enumerate(self.values)), self.shape)

    def __truediv__(self, other):
        return self._each(other, lambda x, y: x / y)

    def __add__(self, other):
        return self._each(other, lambda x, y: x + y)

    def __mul__(self, other):
        return self._each(other, lambda x, y: x * y)

    def __gt__(self, other):
        return self._each(other, lambda x, y: x > y)

    def __eq__(self, other):
        return self._each(other, lambda x, y: x == y)

    def __invert__(self):
        return Tensor((not x for x in self.values), self.shape)

    def masked_fill(self, mask, value):
        return self._each(mask, lambda x, masked: value if masked else x)

    def tril(self, diagonal):
        rows, columns = self.shape
        return Tensor((x and i % columns - i // columns <= diagonal for i, x in enumerate(self.values)), self.shape)

    def softmax(self, axis):
        assert axis == -1
        n, out = self.shape[-1], []
        for start in range(0, len(self.values), n):
            row = self.values[start:start + n]
            weights = [math.exp(x - max(row)) for x in row]
            out += [w / sum(weights) for w in weights]
        return Tensor(out, self.shape)

    def abs(self):
        return Tensor(map(abs, self.values), self.shape)

    def max(self):
        return max(self.values)

    def all(self):
        return all(self.values)

    device = None


class Torch:
    bool = bool

    @staticmethod
    def ones(*shape, dtype, device):
        return Tensor([True] * math.prod(shape), shape)

    @staticmethod
    def zeros(n):
        return Tensor([0.0] * n, (n,))

    @staticmethod
    def cat(tensors, axis=0):
        rank = len(tensors[0].shape)
        if axis == rank - 1 and rank == 2:
            rows = tensors[0].shape[0]
            out = [x for r in range(rows) for t in tensors for x in t.values[r * t.shape[1]:(r + 1) * t.shape[1]]]
            return Tensor(out, (rows, sum(t.shape[1] for t in tensors)))
        assert rank == 1
        return Tensor([x for t in tensors for x in t.values], (sum(t.shape[0] for t in tensors),))
