/* The page's WebAssembly module: the arithmetic of src/ldp_slicing/_kernel.h, AES for ties, and the convolution of the
 * attack view. JavaScript lays out the memory above heap_base() and passes addresses; web/src/kernel.js is its only
 * caller. */
#include "_kernel.h"
#include "aes.h"
#include "convolve.h"

#define EXPORT(NAME) __attribute__((export_name(#NAME))) NAME

extern uint8_t __heap_base;

uint8_t *EXPORT(heap_base)(void) { return &__heap_base; }

void EXPORT(expand_key)(uint8_t *keys) { aes_expand(keys); }

void EXPORT(encrypt)(const uint8_t *keys, uint8_t *blocks, int count) { aes_encrypt(keys, blocks, count); }

/* Draws the masks of `blocks` blocks and settles their ties. `counters` has room for `room` counters, `answers` too.
 * Returns the number of ties. If they are more than `room`, nothing is settled: call again with more. */
int EXPORT(draw)(const uint8_t *lanes, const uint8_t *first, const uint64_t *rest, const uint8_t *outcome,
    const uint8_t *uniform, int groups, int planes, int blocks, uint32_t first_pixel, uint8_t *out, int stride,
    const uint8_t *keys, uint8_t *counters, uint8_t *answers, int room) {
    Masks m = {lanes, first, rest, outcome, uniform, groups, planes, blocks, 0, first_pixel, out, stride, {0}};
    for (ptrdiff_t g = 0; g < groups; g++) m.per_block += lanes_of(&m, g);
    find_empty(&m);
    int ties = (int)draw_masks(&m, lookup_plain, counters, room);
    if (ties > room) return ties;
    memcpy(answers, counters, (size_t)ties * AES_BLOCK);
    aes_encrypt(keys, answers, ties);
    if (!settle_ties(&m, counters, answers, ties)) __builtin_trap();
    return ties;
}

void EXPORT(finish)(const void *source, void *release, const uint8_t *masks, int stride, int height, int width,
    int channels, int bits, int block, int gain, uint32_t keep, uint32_t drop, int to_rgb) {
    Strip s = {source, release, masks, stride, height, width, block, gain, bits, to_rgb, keep, drop};
    finish_plain(&s, channels);
}

/* Canvas pixels have an alpha channel, which is always 255 here. */
void EXPORT(drop_alpha)(const uint8_t *rgba, uint8_t *rgb, int pixels) {
    for (int i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++) rgb[3 * i + c] = rgba[4 * i + c];
}

void EXPORT(add_alpha)(const uint8_t *rgb, uint8_t *rgba, int pixels) {
    for (int i = 0; i < pixels; i++) {
        for (int c = 0; c < 3; c++) rgba[4 * i + c] = rgb[3 * i + c];
        rgba[4 * i + 3] = 255;
    }
}

void EXPORT(convolve)(const float *in, int inside, int height, int width, const float *weights, const float *bias,
    int outside, int relu, float *out) {
    convolve_3x3(in, inside, height, width, weights, bias, outside, relu, out);
}
