/* The loops of _kernel.h for AVX2 and AVX-512. The table look-ups and the colour conversion have AVX-512 versions
 * written with intrinsics; everything else is compiled again for each instruction set. */
#include "_kernel.h"
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#ifdef __clang__
#define WIDE ""
#else
#define WIDE ",prefer-vector-width=512"
#endif
#define VBMI __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi" WIDE)))

AVX2 static void lookup_avx2(Columns c, Run run) { lookup_rows(c, run); }

/* Byte permutations. They are filled when the module is loaded. */
static struct {
    uint8_t even[64], odd[64];                               /* of 128 bytes */
    uint8_t red_green[64], blue_green[64], red_blue[64];     /* 16 pixels of RGB to pairs of 16-bit numbers */
    uint8_t begin[64], end[64];                              /* 32 + 32 + 32 bytes to 32 pixels of RGB */
} shuffle;

static void fill_shuffle(void) {
    for (int i = 0; i < 64; i++) {
        int pixel = i / 4, second = i % 4 >= 2;
        shuffle.even[i] = (uint8_t)(2 * i);
        shuffle.odd[i] = (uint8_t)(2 * i + 1);
        shuffle.red_green[i] = (uint8_t)(3 * pixel + (second ? 1 : 0));
        shuffle.blue_green[i] = (uint8_t)(3 * pixel + (second ? 1 : 2));
        shuffle.red_blue[i] = (uint8_t)(3 * pixel + (second ? 2 : 0));
        shuffle.begin[i] = (uint8_t)(i % 3 * 32 + i / 3);
        shuffle.end[i] = (uint8_t)((i + 64) % 3 * 32 + (i + 64) / 3 % 32);
    }
}

typedef struct {
    __m512i quarter[4];
} Table256;

VBMI INLINE Table256 load_table(const uint8_t *table) {
    return (Table256){{_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64), _mm512_loadu_si512(table + 128),
        _mm512_loadu_si512(table + 192)}};
}

VBMI INLINE __m512i look_up(Table256 t, __m512i index) {
    __m512i low = _mm512_permutex2var_epi8(t.quarter[0], index, t.quarter[1]);
    __m512i high = _mm512_permutex2var_epi8(t.quarter[2], index, t.quarter[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

VBMI static void lookup_vbmi(Columns c, Run run) {
    Table256 first = load_table(c.first), own = load_table(c.own), other = load_table(c.other);
    __m512i even = _mm512_loadu_si512(shuffle.even), odd = _mm512_loadu_si512(shuffle.odd);
    for (ptrdiff_t b = 0; b < run.blocks; b++) {
        const uint8_t *lane = run.lane + b * run.step;
        uint8_t *out = run.out + b * BLOCK_PIXELS;
        __m512i one = _mm512_loadu_si512(lane), two = _mm512_loadu_si512(lane + 64);
        __m512i low = _mm512_permutex2var_epi8(one, even, two), column = _mm512_permutex2var_epi8(one, odd, two);
        __m512i threshold = look_up(first, column);
        __mmask64 below = _mm512_cmplt_epu8_mask(low, threshold);
        __m512i value = _mm512_mask_blend_epi8(below, look_up(other, column), look_up(own, column));
        if (run.uniform) { /* every second byte belongs to the plane; the last byte may lie outside and is not read */
            const uint8_t *uniform = run.uniform + b * run.step;
            __m512i end = _mm512_maskz_loadu_epi8(~(__mmask64)0 >> 1, uniform + 64);
            value = _mm512_and_si512(value, _mm512_permutex2var_epi8(_mm512_loadu_si512(uniform), even, end));
        }
        _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_loadu_si512(out), value));
        run.ties[b] = _mm512_cmpeq_epi8_mask(low, threshold);
    }
}

AVX2 static void load_avx2(const uint8_t *rgb, ptrdiff_t n, int16_t *y, int16_t *cb, int16_t *cr) {
    load_colour(rgb, n, y, cb, cr);
}
AVX2 static void store_avx2(uint8_t *out, ptrdiff_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb) {
    store_colour(out, n, y, cb, cr, to_rgb);
}

VBMI INLINE __m512i pair(int low, int high) { return _mm512_set1_epi32((int)((uint32_t)high << 16 | (uint16_t)low)); }

/* (a . x + b . y + add) >> 16 for 16 pixels whose channels are pairs of 16-bit values */
VBMI INLINE __m512i weigh(__m512i x, __m512i a, __m512i y, __m512i b, int add) {
    __m512i sum = _mm512_add_epi32(_mm512_madd_epi16(x, a), _mm512_madd_epi16(y, b));
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(add)), 16);
}

/* Coefficients of more than 16 bits are split over two pairs: 38470 = 2 * 19235, 32768 = 2 * 16384. */
VBMI static void load_vbmi(const uint8_t *rgb, ptrdiff_t n, int16_t *y, int16_t *cb, int16_t *cr) {
    const __mmask64 words = 0x5555555555555555;
    __m512i red_green = _mm512_loadu_si512(shuffle.red_green), blue_green = _mm512_loadu_si512(shuffle.blue_green);
    __m512i red_blue = _mm512_loadu_si512(shuffle.red_blue);
    for (ptrdiff_t i = 0; i < n; i += 16) {
        __mmask64 there = n - i < 16 ? ((__mmask64)1 << 3 * (n - i)) - 1 : ((__mmask64)1 << 48) - 1;
        __m512i pixels = _mm512_maskz_loadu_epi8(there, rgb + 3 * i);
        __m512i rg = _mm512_maskz_permutexvar_epi8(words, red_green, pixels);
        __m512i bg = _mm512_maskz_permutexvar_epi8(words, blue_green, pixels);
        __m512i rb = _mm512_maskz_permutexvar_epi8(words, red_blue, pixels);
        __m512i luma = weigh(rg, pair(19595, 19235), bg, pair(7471, 19235), 32768);
        __m512i blue = weigh(bg, pair(16384, -21709), rb, pair(-11059, 16384), (128 << 16) + 32767);
        __m512i red = weigh(rg, pair(16384, -27439), rb, pair(16384, -5329), (128 << 16) + 32767);
        _mm256_storeu_si256((__m256i *)(y + i), _mm512_cvtepi32_epi16(luma));
        _mm256_storeu_si256((__m256i *)(cb + i), _mm512_cvtepi32_epi16(blue));
        _mm256_storeu_si256((__m256i *)(cr + i), _mm512_cvtepi32_epi16(red));
    }
}

/* (a * b + c * r + 32768) >> 16 for 32 pixels: `low` and `high` hold the pairs (b, r) */
VBMI INLINE __m512i turn(__m512i low, __m512i high, int a, int c) {
    __m512i half = _mm512_set1_epi32(32768), by = pair(a, c);
    __m512i one = _mm512_srai_epi32(_mm512_add_epi32(_mm512_madd_epi16(low, by), half), 16);
    __m512i two = _mm512_srai_epi32(_mm512_add_epi32(_mm512_madd_epi16(high, by), half), 16);
    return _mm512_packs_epi32(one, two);
}

VBMI INLINE __m256i to_bytes(__m512i x) { return _mm512_cvtusepi16_epi8(_mm512_max_epi16(x, _mm512_setzero_si512())); }

VBMI static void store_vbmi(uint8_t *out, ptrdiff_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb) {
    __m512i middle = _mm512_set1_epi16(128), begin = _mm512_loadu_si512(shuffle.begin),
        end = _mm512_loadu_si512(shuffle.end);
    for (ptrdiff_t i = 0; i < n; i += 32) {
        __m512i one = _mm512_loadu_si512(y + i), two = _mm512_loadu_si512(cb + i), three = _mm512_loadu_si512(cr + i);
        if (to_rgb) {
            __m512i luma = one, b = _mm512_sub_epi16(two, middle), r = _mm512_sub_epi16(three, middle);
            __m512i low = _mm512_unpacklo_epi16(b, r), high = _mm512_unpackhi_epi16(b, r);
            one = _mm512_add_epi16(_mm512_add_epi16(luma, r), turn(low, high, 0, 26345));
            two = _mm512_add_epi16(_mm512_sub_epi16(luma, r), turn(low, high, -22554, 18734));
            three = _mm512_add_epi16(_mm512_add_epi16(luma, _mm512_add_epi16(b, b)), turn(low, high, -14942, 0));
        }
        __m512i first = _mm512_inserti64x4(_mm512_castsi256_si512(to_bytes(one)), to_bytes(two), 1);
        __m512i last = _mm512_castsi256_si512(to_bytes(three));
        ptrdiff_t bytes = 3 * (n - i < 32 ? n - i : 32);
        __mmask64 head = bytes < 64 ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
        __mmask64 tail = bytes > 64 ? ((__mmask64)1 << (bytes - 64)) - 1 : 0;
        _mm512_mask_storeu_epi8(out + 3 * i, head, _mm512_permutex2var_epi8(first, begin, last));
        _mm512_mask_storeu_epi8(out + 3 * i + 64, tail, _mm512_permutex2var_epi8(first, end, last));
    }
}

DEFINE_FINISH(finish_avx2, AVX2, load_avx2, store_avx2)
DEFINE_FINISH(finish_vbmi, VBMI, load_vbmi, store_vbmi)
