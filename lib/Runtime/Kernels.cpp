//===- Kernels.cpp - Reference kernels for opaque computations ----------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// What `comm.compute` does when a program is run: plain kernels by name, sums in index order, so that results are equal
// bit for bit on every machine. A name without a kernel gets an opaque computation: its outputs depend on the name and
// on each bit of its inputs, so that any wrong order, lost wait or wrong buffer shows in the results.
//
//===--------------------------------------------------------------------------------------------===//

#include "Core.h"
#include "Formats.h"
#include <cmath>
#include <cstring>
#include <thread>

using namespace commsched::runtime;

namespace {
struct Operand {
  char *data;
  int32_t dtype;
  int64_t flags;
  std::vector<int64_t> sizes;

  int64_t elements() const {
    int64_t count = 1;
    for (int64_t size : sizes)
      count *= size;
    return count;
  }
  int64_t bytes() const { return elements() * commrt_dtype_size(dtype); }
  bool isOutput() const { return flags & COMMRT_OPERAND_OUTPUT; }
  bool isWritten() const { return flags & COMMRT_OPERAND_WRITTEN; }
  bool isFloat() const { return dtype <= COMMRT_F64; }
};

/// The operands of one call, inputs and outputs apart.
struct Call {
  std::string name; ///< without the overload: "aten.add" of "aten.add.Tensor"
  std::string fullName;
  std::vector<Operand *> inputs, outputs, mutated;
  std::vector<int64_t> extra;
};
} // namespace

template <typename F> static void withType(int32_t dtype, F body) {
  switch (dtype) {
  case COMMRT_F16:
    return body(Half());
  case COMMRT_BF16:
    return body(BFloat());
  case COMMRT_F32:
    return body(float());
  case COMMRT_F64:
    return body(double());
  case COMMRT_I8:
    return body(int8_t());
  case COMMRT_I16:
    return body(int16_t());
  case COMMRT_I32:
    return body(int32_t());
  case COMMRT_I64:
    return body(int64_t());
  case COMMRT_U8:
    return body(uint8_t());
  case COMMRT_U16:
    return body(uint16_t());
  case COMMRT_U32:
    return body(uint32_t());
  case COMMRT_U64:
    return body(uint64_t());
  default:
    return body(Bool());
  }
}

/// Element i as a double; exact for all floating-point types and for integers below 2^53.
static double read(const Operand &operand, int64_t i) {
  double value = 0;
  withType(operand.dtype, [&](auto type) {
    value = static_cast<double>(load(reinterpret_cast<const decltype(type) *>(operand.data)[i]));
  });
  return value;
}

static void write(Operand &operand, int64_t i, double value) {
  withType(operand.dtype, [&](auto type) {
    using T = decltype(type);
    using A = decltype(load(type));
    T &out = reinterpret_cast<T *>(operand.data)[i];
    if constexpr (std::is_floating_point_v<A>)
      store(static_cast<A>(value), out);
    else if constexpr (std::is_same_v<T, Bool>)
      store(static_cast<A>(value != 0), out);
    else // out of range has no meaning in C++: clamp to what int64_t holds
      store(static_cast<A>(static_cast<int64_t>(std::fmin(std::fmax(std::isnan(value) ? 0 : value, -9.2e18), 9.2e18))),
            out);
  });
}

//===- Kernels -------------------------------------------------------------------------------===//

/// [..., M, K] x [..., K, N]; sums in f32 (f64 for f64) in order of k.
static bool matmul(Call &call) {
  if (call.inputs.size() < 2 || call.outputs.size() != 1)
    return false;
  bool hasBias = call.inputs.size() == 3;
  const Operand &a = *call.inputs[hasBias], &b = *call.inputs[hasBias + 1];
  Operand &out = *call.outputs[0];
  size_t rank = a.sizes.size();
  if (call.inputs.size() > 3 || rank < 2 || b.sizes.size() != rank || out.sizes.size() != rank || !out.isFloat())
    return false;
  int64_t m = a.sizes[rank - 2], k = a.sizes[rank - 1], n = b.sizes[rank - 1], batches = 1;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (a.sizes[i] != b.sizes[i] || a.sizes[i] != out.sizes[i])
      return false;
    batches *= a.sizes[i];
  }
  if (b.sizes[rank - 2] != k || out.sizes[rank - 2] != m || out.sizes[rank - 1] != n)
    return false;
  if (hasBias && call.inputs[0]->elements() != n && call.inputs[0]->elements() != m * n)
    return false;
  bool isDouble = out.dtype == COMMRT_F64;
  std::vector<double> row(n);
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t i = 0; i < m; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t x = 0; x < k; ++x) {
        double left = read(a, (batch * m + i) * k + x);
        for (int64_t j = 0; j < n; ++j) {
          double sum = row[j] + left * read(b, (batch * k + x) * n + j);
          row[j] = isDouble ? sum : static_cast<double>(static_cast<float>(sum));
        }
      }
      for (int64_t j = 0; j < n; ++j) {
        double bias = hasBias ? read(*call.inputs[0], call.inputs[0]->elements() == n ? j : i * n + j) : 0;
        write(out, (batch * m + i) * n + j, row[j] + bias);
      }
    }
  return true;
}

static double unary(const std::string &name, double x, bool &known) {
  known = true;
  if (name == "relu")
    return x < 0 ? 0 : x;
  if (name == "neg")
    return -x;
  if (name == "exp")
    return std::exp(x);
  if (name == "tanh")
    return std::tanh(x);
  if (name == "sqrt")
    return std::sqrt(x);
  if (name == "reciprocal")
    return 1 / x;
  if (name == "abs")
    return std::fabs(x);
  if (name == "log")
    return std::log(x);
  if (name == "sin")
    return std::sin(x);
  if (name == "cos")
    return std::cos(x);
  if (name == "rsqrt")
    return 1 / std::sqrt(x);
  if (name == "sigmoid")
    return 1 / (1 + std::exp(-x));
  if (name == "silu")
    return x / (1 + std::exp(-x));
  if (name == "gelu")
    return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
  if (name == "copy" || name == "clone" || name == "_to_copy" || name == "convert_element_type" || name == "cast")
    return x;
  known = false;
  return 0;
}

static double binary(const std::string &name, double x, double y, bool &known) {
  known = true;
  if (name == "add")
    return x + y;
  if (name == "sub")
    return x - y;
  if (name == "mul")
    return x * y;
  if (name == "div")
    return x / y;
  if (name == "maximum")
    return x < y ? y : x;
  if (name == "minimum")
    return y < x ? y : x;
  if (name == "pow")
    return std::pow(x, y);
  if (name == "relu_backward" || name == "threshold_backward")
    return y > 0 ? x : 0;
  known = false;
  return 0;
}

namespace {
/// Walks an operand in the order of an output's elements: dimensions are aligned at the end, and one of size 1 is
/// repeated.
class Broadcast {
public:
  Broadcast(const Operand &operand, const Operand &out) : operand(operand), sizes(out.sizes), index(out.sizes.size()) {
    strides.assign(sizes.size(), 0);
    fits = operand.sizes.size() <= sizes.size();
    int64_t stride = 1;
    for (size_t i = 1; fits && i <= operand.sizes.size(); ++i) {
      int64_t size = operand.sizes[operand.sizes.size() - i];
      fits = size == 1 || size == sizes[sizes.size() - i];
      strides[sizes.size() - i] = size == 1 ? 0 : stride;
      stride *= size;
    }
  }

  bool isPossible() const { return fits; }
  /// The next element.
  double next() {
    double value = read(operand, at);
    for (size_t dim = sizes.size(); dim-- > 0;) {
      at += strides[dim];
      if (++index[dim] < sizes[dim])
        break;
      at -= strides[dim] * sizes[dim];
      index[dim] = 0;
    }
    return value;
  }

private:
  const Operand &operand;
  const std::vector<int64_t> &sizes;
  std::vector<int64_t> strides, index;
  int64_t at = 0;
  bool fits = true;
};
} // namespace

/// One or two inputs, each of the output's shape or broadcast to it.
static bool elementwise(Call &call) {
  bool known = false;
  size_t inputs = call.inputs.size();
  if (inputs == 1)
    unary(call.name, 1, known);
  else if (inputs == 2)
    binary(call.name, 1, 1, known);
  if (!known || call.outputs.size() != 1)
    return false;
  Operand &out = *call.outputs[0];
  Broadcast left(*call.inputs[0], out), right(*call.inputs[inputs - 1], out);
  if (!left.isPossible() || !right.isPossible())
    return false;
  for (int64_t i = 0, n = out.elements(); i < n; ++i) {
    double x = left.next();
    write(out, i, inputs == 1 ? unary(call.name, x, known) : binary(call.name, x, right.next(), known));
  }
  return true;
}

/// Over the last dimension.
static bool softmax(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1 || call.inputs[0]->sizes != call.outputs[0]->sizes ||
      call.inputs[0]->sizes.empty() || !call.outputs[0]->isFloat())
    return false;
  const Operand &in = *call.inputs[0];
  int64_t n = in.sizes.back(), rows = n ? in.elements() / n : 0;
  std::vector<double> row(n);
  for (int64_t r = 0; r < rows; ++r) {
    double largest = read(in, r * n), sum = 0;
    for (int64_t i = 1; i < n; ++i)
      largest = std::fmax(largest, read(in, r * n + i));
    for (int64_t i = 0; i < n; ++i)
      sum += row[i] = std::exp(read(in, r * n + i) - largest);
    for (int64_t i = 0; i < n; ++i)
      write(*call.outputs[0], r * n + i, row[i] / sum);
  }
  return true;
}

/// From the gradient of the result and the result: r * (g - sum of g * r over the last dimension).
static bool softmaxBackward(Call &call) {
  if (call.inputs.size() != 2 || call.outputs.size() != 1 || call.inputs[0]->sizes != call.outputs[0]->sizes ||
      call.inputs[1]->sizes != call.outputs[0]->sizes || call.inputs[0]->sizes.empty() || !call.outputs[0]->isFloat())
    return false;
  const Operand &gradient = *call.inputs[0], &result = *call.inputs[1];
  int64_t n = result.sizes.back(), rows = n ? result.elements() / n : 0;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i)
      sum += read(gradient, i) * read(result, i);
    for (int64_t i = r * n; i < (r + 1) * n; ++i)
      write(*call.outputs[0], i, read(result, i) * (read(gradient, i) - sum));
  }
  return true;
}

/// The input's dimensions that a sum to `out` leaves, or nothing if `out` is no such sum: with as many dimensions,
/// those that are not 1; with fewer, the leading ones if they match, else the trailing ones.
static bool findKeptDims(const Operand &in, const Operand &out, std::vector<bool> &kept) {
  size_t rank = in.sizes.size(), outRank = out.sizes.size();
  kept.assign(rank, false);
  if (outRank == rank) {
    for (size_t dim = 0; dim < rank; ++dim) {
      kept[dim] = out.sizes[dim] == in.sizes[dim];
      if (!kept[dim] && out.sizes[dim] != 1)
        return false;
    }
    return true;
  }
  if (out.elements() == 1)
    return true;
  if (outRank > rank)
    return false;
  bool leads = std::equal(out.sizes.begin(), out.sizes.end(), in.sizes.begin());
  if (!leads && !std::equal(out.sizes.rbegin(), out.sizes.rend(), in.sizes.rbegin()))
    return false;
  for (size_t i = 0; i < outRank; ++i)
    kept[leads ? i : rank - 1 - i] = true;
  return true;
}

/// Sum or mean, each in order of the input's elements.
static bool reduction(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1 || !call.outputs[0]->isFloat())
    return false;
  const Operand &in = *call.inputs[0];
  Operand &out = *call.outputs[0];
  std::vector<bool> kept;
  if (!findKeptDims(in, out, kept))
    return false;
  std::vector<double> sums(out.elements(), 0.0);
  std::vector<int64_t> index(in.sizes.size(), 0);
  int64_t n = in.elements();
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = 0;
    for (size_t dim = 0; dim < index.size(); ++dim)
      if (kept[dim])
        at = at * in.sizes[dim] + index[dim];
    sums[at] += read(in, i);
    for (size_t dim = index.size(); dim-- > 0;) {
      if (++index[dim] < in.sizes[dim])
        break;
      index[dim] = 0;
    }
  }
  double count = sums.empty() ? 1 : static_cast<double>(n) / static_cast<double>(sums.size());
  for (size_t i = 0; i < sums.size(); ++i)
    write(out, static_cast<int64_t>(i), call.name == "mean" ? sums[i] / count : sums[i]);
  return true;
}

/// Swaps the last two dimensions.
static bool transpose(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1)
    return false;
  const Operand &in = *call.inputs[0];
  Operand &out = *call.outputs[0];
  size_t rank = in.sizes.size();
  if (rank < 2 || out.dtype != in.dtype || out.sizes.size() != rank || out.sizes[rank - 1] != in.sizes[rank - 2] ||
      out.sizes[rank - 2] != in.sizes[rank - 1] || out.elements() != in.elements())
    return false;
  int64_t rows = in.sizes[rank - 2], cols = in.sizes[rank - 1], size = commrt_dtype_size(in.dtype);
  for (int64_t batch = 0; rows * cols > 0 && batch < in.elements() / (rows * cols); ++batch)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        std::memcpy(out.data + (batch * rows * cols + c * rows + r) * size,
                    in.data + (batch * rows * cols + r * cols + c) * size, size);
  return true;
}

static void copyElements(const Operand &from, int64_t fromAt, Operand &to, int64_t toAt, int64_t count) {
  int64_t size = commrt_dtype_size(from.dtype);
  if (count <= 0)
    return;
  if (from.dtype == to.dtype)
    std::memmove(to.data + toAt * size, from.data + fromAt * size, count * size);
  else
    for (int64_t i = 0; i < count; ++i)
      write(to, toAt + i, read(from, fromAt + i));
}

//===- FSDP ----------------------------------------------------------------------------------===//

/// Inputs, flattened, converted to these types, and one after the other as bytes.
static void packBytes(Call &call) {
  char *to = call.outputs[0]->data;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    Operand &input = *call.inputs[k];
    Operand piece{nullptr, static_cast<int32_t>(call.extra.at(k)), 0, input.sizes};
    std::vector<char> converted;
    if (piece.dtype == input.dtype) {
      piece.data = input.data;
    } else {
      converted.resize(piece.bytes());
      piece.data = converted.data();
      copyElements(input, 0, piece, 0, input.elements());
    }
    if (piece.bytes() > 0)
      std::memcpy(to, piece.data, piece.bytes());
    to += piece.bytes();
  }
}

/// extra: nothing, or for each input the type as whose bytes it is packed. Inputs, flattened and converted, one after
/// the other.
static bool pack(Call &call) {
  if (!call.extra.empty()) {
    packBytes(call);
    return true;
  }
  int64_t at = 0;
  for (Operand *input : call.inputs) {
    copyElements(*input, 0, *call.outputs[0], at, input->elements());
    at += input->elements();
  }
  return true;
}

/// extra: [chunks]. Row c of the output is piece c, along dimension 0 and padded with zeros, of each input.
static bool chunkCat(Call &call) {
  Operand &out = *call.outputs[0];
  std::memset(out.data, 0, out.bytes());
  int64_t chunks = call.extra.at(0), at = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (Operand *input : call.inputs) {
      int64_t rows = input->sizes.empty() ? 1 : input->sizes[0];
      int64_t rowElements = rows ? input->elements() / rows : 0;
      int64_t piece = (rows + chunks - 1) / chunks, begin = std::min(rows, chunk * piece);
      copyElements(*input, begin * rowElements, out, at, (std::min(rows, begin + piece) - begin) * rowElements);
      at += piece * rowElements;
    }
  return true;
}

/// extra: [number of sizes, sizes..., members...]. Output k is piece members[k] of each rank's row. Bytes are copied:
/// the outputs are of the source's type, or the source is of bytes.
static bool splitCopy(Call &call) {
  int64_t numSizes = call.extra.at(0), row = 0;
  const int64_t *sizes = call.extra.data() + 1, *members = sizes + numSizes;
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < numSizes; ++i) {
    offsets.push_back(row);
    row += sizes[i];
  }
  const Operand &source = *call.inputs[0];
  int64_t ranks = row ? source.elements() / row : 0, width = commrt_dtype_size(source.dtype);
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    int64_t bytes = sizes[members[k]] * width;
    for (int64_t rank = 0; bytes > 0 && rank < ranks; ++rank)
      std::memmove(call.outputs[k]->data + rank * bytes, source.data + (rank * row + offsets[members[k]]) * width,
                   bytes);
  }
  return true;
}

//===- Opaque --------------------------------------------------------------------------------===//

static uint64_t digest(uint64_t hash, const Operand &operand) {
  int64_t bytes = operand.bytes(), i = 0;
  uint64_t word;
  for (; i + 8 <= bytes; i += 8) {
    std::memcpy(&word, operand.data + i, 8);
    hash = mix(hash, word);
  }
  word = 0;
  if (bytes > i)
    std::memcpy(&word, operand.data + i, bytes - i);
  return mix(mix(hash, word), bytes);
}

/// Small values that every type holds exactly, different for each element.
static void fill(Operand &operand, uint64_t seed) {
  int64_t n = operand.elements();
  for (int64_t i = 0; i < n; ++i) {
    auto bits = static_cast<int64_t>(mix(seed, i) >> 57); // 0..127
    write(operand, i, operand.isFloat() ? static_cast<double>(bits - 64) / 64 : static_cast<double>(bits & 7));
  }
}

static void opaque(Call &call) {
  uint64_t hash = 0;
  for (char c : call.fullName)
    hash = mix(hash, static_cast<unsigned char>(c));
  for (Operand *input : call.inputs)
    hash = digest(hash, *input);
  uint64_t number = 0;
  for (auto *list : {&call.mutated, &call.outputs})
    for (Operand *operand : *list)
      fill(*operand, mix(hash, ++number));
}

static bool runKernel(Call &call) {
  if (call.name == "comm.pack")
    return pack(call);
  if (call.name == "comm.chunk_cat")
    return chunkCat(call);
  if (call.name == "comm.split_copy")
    return splitCopy(call);
  if (!call.mutated.empty())
    return false;
  if (call.name == "mm" || call.name == "bmm" || call.name == "matmul" || call.name == "addmm")
    return matmul(call);
  if (call.name == "softmax" || call.name == "_softmax")
    return softmax(call);
  if (call.name == "softmax_backward" || call.name == "_softmax_backward_data")
    return softmaxBackward(call);
  if (call.name == "sum" || call.name == "mean")
    return reduction(call);
  if (call.name == "t" || call.name == "transpose")
    return transpose(call);
  return elementwise(call);
}

/// "aten.add.Tensor" -> "add"; "prims.x.default" -> "x"; "comm.pack" stays.
static std::string shortName(const std::string &name) {
  if (name.rfind("comm.", 0) == 0)
    return name;
  size_t begin = name.rfind("aten.", 0) == 0 ? 5 : name.rfind("prims.", 0) == 0 ? 6 : 0;
  return name.substr(begin, name.find('.', begin) - begin);
}

int32_t commrt_compute(commrt_context *context, const char *name, int64_t numOperands, void *const *operands,
                       const int64_t *meta, int64_t costNs) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (!name || numOperands < 0 || (numOperands > 0 && !operands) || !meta)
    return fail(context, COMMRT_ERR_INVALID, "commrt_compute: an argument is NULL");
  commrt_progress(context);
  std::vector<Operand> all(numOperands);
  Call call{shortName(name), name, {}, {}, {}, {}};
  for (int64_t i = 0; i < numOperands; ++i) {
    all[i] = {static_cast<char *>(operands[i]), static_cast<int32_t>(meta[0]), meta[1], {meta + 3, meta + 3 + meta[2]}};
    meta += 3 + meta[2];
    (all[i].isOutput() ? call.outputs : call.inputs).push_back(&all[i]);
    if (all[i].isWritten() && !all[i].isOutput())
      call.mutated.push_back(&all[i]);
  }
  call.extra.assign(meta + 1, meta + 1 + meta[0]);
  int64_t begin = contextNs(context), realBegin = elapsedNs(context->job);
  if (!runKernel(call))
    opaque(call);
  while (context->emulatesCosts && elapsedNs(context->job) - realBegin < costNs)
    std::this_thread::sleep_for(std::chrono::nanoseconds(costNs - (elapsedNs(context->job) - realBegin)));
  commrt_advance(context, std::max<int64_t>(0, costNs));
  commrt_trace_compute(context, name, begin, contextNs(context));
  return commrt_progress(context);
}

int32_t commrt_emulate_costs(commrt_context *context, int32_t on) {
  if (!context)
    return COMMRT_ERR_INVALID;
  context->emulatesCosts = on != 0;
  return latched(context);
}
