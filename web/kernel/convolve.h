/* 3 x 3 convolutions with zero padding, for the network of the attack view. */
#include <stddef.h>
#include <wasm_simd128.h>

/* A plane has a border of one value: it has (height + 2) rows of `width + 8` values, and begins at its padding. */
enum { BORDER = 8, TOGETHER = 4 };

static inline ptrdiff_t plane_size(int height, int width) { return (ptrdiff_t)(height + 2) * (width + BORDER); }

/* in: [inside] planes. weights: [outside / 4][inside][9][4]. out: [outside] planes, whose borders stay as they are.
 * outside must be a multiple of 4. Four channels of eight pixels are computed together. A row may be read a few values
 * beyond its end, but those do not reach the result. */
static void convolve_3x3(const float *in, int inside, int height, int width, const float *weights, const float *bias,
    int outside, int relu, float *out) {
    const ptrdiff_t row = width + BORDER, plane = plane_size(height, width);
    const v128_t zero = wasm_f32x4_const_splat(0);
    for (int o = 0; o < outside; o += TOGETHER, weights += (ptrdiff_t)inside * 9 * TOGETHER)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x += 8) {
                v128_t sum[TOGETHER][2];
                for (int k = 0; k < TOGETHER; k++) sum[k][0] = sum[k][1] = wasm_f32x4_splat(bias[o + k]);
                const float *w = weights;
                for (int c = 0; c < inside; c++)
                    for (int dy = 0; dy < 3; dy++) {
                        const float *at = in + c * plane + (y + dy) * row + x;
                        for (int dx = 0; dx < 3; dx++, w += TOGETHER) {
                            v128_t one = wasm_v128_load(at + dx), two = wasm_v128_load(at + dx + 4);
                            for (int k = 0; k < TOGETHER; k++) {
                                v128_t by = wasm_f32x4_splat(w[k]);
                                sum[k][0] = wasm_f32x4_add(sum[k][0], wasm_f32x4_mul(one, by));
                                sum[k][1] = wasm_f32x4_add(sum[k][1], wasm_f32x4_mul(two, by));
                            }
                        }
                    }
                for (int k = 0; k < TOGETHER; k++) {
                    float eight[8], *to = out + (o + k) * plane + (y + 1) * row + x + 1;
                    for (int h = 0; h < 2; h++)
                        wasm_v128_store(eight + 4 * h, relu ? wasm_f32x4_max(sum[k][h], zero) : sum[k][h]);
                    for (int i = 0; i < 8 && x + i < width; i++) to[i] = eight[i];
                }
            }
}
