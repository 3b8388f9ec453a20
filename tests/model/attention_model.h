// The oracle for decode attention: doubles, a contiguous cache, two passes, nothing clever.
//
// Shares no code with the kernels: it has its own reading of an e4m3 code and knows nothing of
// pages, rows or windows. A caller lists the tokens that one query token reads, in order.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvfence::model {

// The value of an e4m3 code, from the format's definition.
inline double E4m3Value(unsigned code) {
  const int sign = (code & 0x80) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(code >> 3 & 0xF);
  const int mantissa = static_cast<int>(code & 7);
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return std::copysign(std::ldexp(mantissa, -9), sign);
  return sign * std::ldexp(8 + mantissa, exponent - 7 - 3);
}

// The code nearest to x by searching all of them; of two equally near, the one with an even
// mantissa; beyond 448 the largest. x is not a NaN.
inline unsigned E4m3Nearest(double x) {
  unsigned best = 0;
  double best_error = std::numeric_limits<double>::infinity();
  for (unsigned code = 0; code < 0x7F; ++code) {
    const double error = std::fabs(std::fabs(x) - E4m3Value(code));
    if (error < best_error || (error == best_error && code % 2 == 0)) {
      best = code;
      best_error = error;
    }
  }
  if (std::fabs(x) > 448) best = 0x7E;
  return best | (std::signbit(x) ? 0x80u : 0u);
}

// The value of a bfloat16, from the format's definition.
inline double Bf16Value(unsigned code) {
  const int sign = (code & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(code >> 7 & 0xFF);
  const int mantissa = static_cast<int>(code & 0x7F);
  if (exponent == 255) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return std::copysign(std::ldexp(mantissa, -126 - 7), sign);
  return sign * std::ldexp(128 + mantissa, exponent - 127 - 7);
}

// What a token's stored numbers stand for, scales included.
struct Token {
  std::vector<double> k, v;  // [kv_heads * key dim], [kv_heads * value dim]
};

struct AttentionShape {
  size_t qo_heads = 1, kv_heads = 1, key_dim = 0, value_dim = 0;
  double sm_scale = 1;
};

struct AttentionResult {
  std::vector<double> o;  // [qo_heads * value_dim]
  std::vector<double> lse;
  // How large the sums are that rounding can hurt: by head, the largest sum of |q * k| * sm_scale
  // of any token; by output, the sum of weight * |v|.
  std::vector<double> score_size, value_size;
};

// One query token, q: [qo_heads * key_dim], over the tokens that it reads.
inline AttentionResult Attention(const std::vector<double>& q, const std::vector<Token>& tokens,
                                 const AttentionShape& s) {
  AttentionResult result;
  result.o.assign(s.qo_heads * s.value_dim, 0.0);
  result.value_size = result.o;
  result.lse.assign(s.qo_heads, -std::numeric_limits<double>::infinity());
  result.score_size.assign(s.qo_heads, 0.0);
  if (tokens.empty()) return result;
  for (size_t h = 0; h < s.qo_heads; ++h) {
    const size_t kv = h / (s.qo_heads / s.kv_heads);
    std::vector<double> score;
    for (const Token& token : tokens) {
      double dot = 0, size = 0;
      for (size_t d = 0; d < s.key_dim; ++d) {
        const double product = q[h * s.key_dim + d] * token.k[kv * s.key_dim + d];
        dot += product;
        size += std::fabs(product);
      }
      score.push_back(dot * s.sm_scale);
      result.score_size[h] = std::fmax(result.score_size[h], size * std::fabs(s.sm_scale));
    }
    double max = score[0];
    for (double one : score) max = std::fmax(max, one);
    double sum = 0;
    for (double one : score) sum += std::exp(one - max);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double weight = std::exp(score[t] - max) / sum;
      for (size_t d = 0; d < s.value_dim; ++d) {
        const double product = weight * tokens[t].v[kv * s.value_dim + d];
        result.o[h * s.value_dim + d] += product;
        result.value_size[h * s.value_dim + d] += std::fabs(product);
      }
    }
    result.lse[h] = max + std::log(sum);
  }
  return result;
}

}  // namespace kvfence::model
