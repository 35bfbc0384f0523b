// Rounding that knows what a matrix is multiplied by (GPTQ, Frantar et al. 2022). The error of a row w, rounded to q, on
// the inputs x of a text is (w - q) H (w - q)^T, with H the sum of x^T x. Columns are rounded one after the other, and
// the later ones take up each one's error as well as they can: with H^-1 = U^T U, U upper triangular, column k's error
// e = (w[k] - q[k]) / U[k][k] changes w[j] by -e U[k][j], and e^2 is what the sum grows by. So 1 / U[k][k]^2 is also a
// column's weight where a group's scale is chosen. Only columns of one block of INT4_BLOCK take up each other's errors.
#include "kernels/int4.h"
#include "kernels/wide_row.h"
#include <math.h>
#include <stdlib.h>

// Added to the diagonal, as a part of its mean, since a text shows only some of the inputs that will come. With 0.01
// the KL divergence of the demo model on other conversations is an eighth larger.
static const double damping = 0.1;

// --- H to U ---

// r: the upper half of a matrix (n, n), which becomes R with R R^T = H. False: H is not positive.
static bool take_root(double *r, int64_t n) {
    for (int64_t j = n - 1; j >= 0; j--) {
        double sum = r[j * n + j];
        for (int64_t k = j + 1; k < n; k++) sum -= r[j * n + k] * r[j * n + k];
        if (!(sum > 0) || !isfinite(sum)) return false;
        r[j * n + j] = sqrt(sum);
        for (int64_t i = 0; i < j; i++) {
            double off = r[i * n + j];
            for (int64_t k = j + 1; k < n; k++) off -= r[i * n + k] * r[j * n + k];
            r[i * n + j] = off / r[j * n + j];
        }
    }
    return true;
}

// U = R^-1, row by row from the last one on: R[i] U = unit vector i.
static void invert(const double *r, double *u, int64_t n) {
    for (int64_t i = n - 1; i >= 0; i--) {
        double *to = u + i * n;
        for (int64_t j = i; j < n; j++) to[j] = i == j;
        for (int64_t k = i + 1; k < n; k++)
            for (int64_t j = k; j < n; j++) to[j] -= r[i * n + k] * u[k * n + j];
        for (int64_t j = i; j < n; j++) to[j] /= r[i * n + i];
    }
}

int int4_factors(float *h, int64_t n, struct err *err) {
    double *r = calloc((size_t)(2 * n * n), sizeof *r), mean = 0;
    if (!r) return err_set(err, E_NOMEM, "no memory for %lld columns", (long long)n);
    for (int64_t i = 0; i < n; i++) mean += (double)h[i * n + i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i; j < n; j++) r[i * n + j] = (double)h[i * n + j];
        r[i * n + i] += mean > 0 ? damping * mean : 1; // without inputs all errors weigh the same
    }
    const bool ok = take_root(r, n);
    if (ok) invert(r, r + n * n, n);
    for (int64_t i = 0; i < n * n && ok; i++) h[i] = (float)r[n * n + i];
    free(r);
    return ok ? 0
              : err_set(err, E_INVAL,
                        "the model gives values on the calibration text that are infinite or no "
                        "numbers");
}

// --- rows ---

static void round_group(float *x, const float *u, int64_t at, int64_t width, float scale,
                        uint32_t *codes) {
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (int64_t k = at; k < at + INT4_GROUP; k++) {
        const float *row = u + k * width, q = int4_integer(x[k], inverse);
        const float e = (x[k] - scale * q) / row[k];
        if (k % 8 == 0) codes[k / 8] = 0;
        codes[k / 8] |= (uint32_t)((int)q + 8) << 4 * (k % 8);
        for (int64_t j = k + 1; j < width; j++) x[j] -= e * row[j];
    }
}

int int4_quantize_row_calibrated(const struct tensor_view *v, int64_t row, enum dtype scale_dtype,
                                 const float *factors, uint32_t *codes, float *scales,
                                 float *work) {
    float largest, weights[INT4_GROUP];
    TRY(wide_row(v, row, work, &largest));
    for (int64_t first = 0; first < v->cols; first += INT4_BLOCK) {
        const int64_t width = v->cols - first < INT4_BLOCK ? v->cols - first : INT4_BLOCK;
        const float *u = factors + first * INT4_BLOCK;
        float *x = work + first;
        for (int64_t at = 0; at < width; at += INT4_GROUP) {
            for (int k = 0; k < INT4_GROUP; k++) {
                const float d = u[(at + k) * width + at + k];
                weights[k] = 1 / (d * d);
            }
            const float scale = int4_best_scale(x + at, weights, scale_dtype);
            if (!isfinite(scale)) return E_INVAL;
            scales[(first + at) / INT4_GROUP] = scale;
            round_group(x, u, at, width, scale, codes + first / 8);
        }
    }
    return 0;
}
