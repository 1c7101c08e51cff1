/* The arithmetic of view.py and mask.py, byte for byte, in plain C that compilers vectorise.
 *
 * It contains no probability and no cipher: the caller passes tables and keystream. Two builds include it: the Python
 * extension (_kernel.c) and the page's WebAssembly module (web/kernel.c). A strip takes three calls:
 *   draw_masks    turns keystream into masks, and writes the counter of every tie;
 *   settle_ties   decides the ties with the encrypted counters;
 *   a finish      made by DEFINE_FINISH, computes rebuild(view(source) XOR mask).
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#define restrict __restrict
#endif

enum { BLOCK_PIXELS = 64, COLUMNS = 256, MAX_PLANES = 3, CHUNK = 256, MAX_BLOCK = 8, ROOM = CHUNK + 32 };

/* ---------------------------------------------------------------- masks */

typedef struct {
    const uint8_t *lanes;   /* [blocks][per_block][64] little-endian uint16 */
    const uint8_t *first;   /* [groups][256] */
    const uint64_t *rest;   /* [groups][256] */
    const uint8_t *outcome; /* [groups][2][planes][256] */
    const uint8_t *uniform; /* [groups] */
    ptrdiff_t groups, planes, blocks, per_block;
    uint64_t first_pixel;
    uint8_t *out;           /* [planes][stride] */
    ptrdiff_t stride;
    uint64_t empty[MAX_PLANES]; /* bit g is set if group g never changes this plane */
} Masks;

typedef struct {
    const uint8_t *first, *own, *other;
} Columns;

/* For each block: out[i] ^= (below the threshold ? own : other) & uniform byte.
 * Bit i of ties[b] is set if draw i equals the threshold. */
typedef struct {
    const uint8_t *lane, *uniform; /* of the first block; uniform is NULL for narrow slices */
    uint8_t *out;
    uint64_t *ties;
    ptrdiff_t blocks, step; /* step: bytes between the lanes of two blocks */
} Run;

typedef void (*Lookup)(Columns c, Run run);

/* Packs (threshold, own, other) of each column into one integer, so that a draw costs one load. */
INLINE void lookup_rows(Columns c, Run run) {
    uint32_t packed[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) packed[i] = c.first[i] | (uint32_t)c.own[i] << 8 | (uint32_t)c.other[i] << 16;
    for (ptrdiff_t b = 0; b < run.blocks; b++) {
        const uint8_t *lane = run.lane + b * run.step, *uniform = run.uniform ? run.uniform + b * run.step : NULL;
        uint8_t value[BLOCK_PIXELS], tie[BLOCK_PIXELS], *out = run.out + b * BLOCK_PIXELS;
        uint32_t entries[BLOCK_PIXELS];
        for (int i = 0; i < BLOCK_PIXELS; i++) entries[i] = packed[lane[2 * i + 1]];
        for (int i = 0; i < BLOCK_PIXELS; i++) {
            uint8_t threshold = (uint8_t)entries[i], low = lane[2 * i];
            uint8_t below = (uint8_t)-(low < threshold); /* 255 or 0: a branch would be mispredicted half of the time */
            value[i] = (uint8_t)(((uint8_t)(entries[i] >> 8) & below) | ((uint8_t)(entries[i] >> 16) & ~below));
            tie[i] = low == threshold;
        }
        if (uniform)
            for (int i = 0; i < BLOCK_PIXELS; i++) value[i] &= uniform[2 * i];
        for (int i = 0; i < BLOCK_PIXELS; i++) out[i] ^= value[i];
        uint64_t ties = 0;
        for (int i = 0; i < BLOCK_PIXELS; i += 8) { /* eight 0-or-1 bytes to eight bits */
            uint64_t eight = 0;
            for (int j = 0; j < 8; j++) eight |= (uint64_t)tie[i + j] << 8 * j;
            ties |= (eight * 0x0102040810204080u >> 56) << i;
        }
        run.ties[b] = ties;
    }
}

static void lookup_plain(Columns c, Run run) { lookup_rows(c, run); }

INLINE Columns columns_of(const Masks *m, ptrdiff_t group, ptrdiff_t plane) {
    const uint8_t *outcome = m->outcome + group * 2 * m->planes * COLUMNS;
    return (Columns){m->first + group * COLUMNS, outcome + plane * COLUMNS, outcome + (m->planes + plane) * COLUMNS};
}

/* The uniform bytes of plane p: the low or high bytes of the uniform lanes, which follow the draws of the group. */
INLINE const uint8_t *uniform_of(const Masks *m, const uint8_t *lane, ptrdiff_t group, ptrdiff_t plane) {
    return m->uniform[group] ? lane + 2 * BLOCK_PIXELS * (1 + plane / 2) + plane % 2 : NULL;
}

INLINE ptrdiff_t lanes_of(const Masks *m, ptrdiff_t group) {
    return m->uniform[group] ? 1 + (m->planes + 1) / 2 : 1;
}

INLINE int is_empty(const Masks *m, ptrdiff_t group, ptrdiff_t plane) {
    Columns c = columns_of(m, group, plane);
    uint8_t any = 0;
    for (int i = 0; i < COLUMNS; i++) any |= c.own[i] | c.other[i];
    return !any;
}

/* Call it before draw_masks. */
INLINE void find_empty(Masks *m) {
    for (ptrdiff_t p = 0; p < m->planes; p++) {
        m->empty[p] = 0;
        for (ptrdiff_t g = 0; g < m->groups; g++) m->empty[p] |= (uint64_t)is_empty(m, g, p) << g;
    }
}

INLINE int lowest_bit(uint64_t bits) {
#ifdef __GNUC__
    return __builtin_ctzll(bits);
#else
    int at = 0;
    while (!(bits >> at & 1)) at++;
    return at;
#endif
}

INLINE void store_big_endian(uint8_t *bytes, uint64_t value) {
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (56 - 8 * i));
}

INLINE uint64_t load_big_endian(const uint8_t *b) {
    return (uint64_t)b[0] << 56 | (uint64_t)b[1] << 48 | (uint64_t)b[2] << 40 | (uint64_t)b[3] << 32
        | (uint64_t)b[4] << 24 | (uint64_t)b[5] << 16 |
           (uint64_t)b[6] << 8 | b[7];
}

INLINE uint64_t load_48_bits(const uint8_t *b) {
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32
        | (uint64_t)b[5] << 40;
}

/* Returns the number of ties, and writes as many of their counters as fit. */
static ptrdiff_t draw_masks(const Masks *m, Lookup lookup, uint8_t *counters, ptrdiff_t room) {
    enum { RUN = 64 }; /* blocks per call, whose ties are kept on the stack */
    uint64_t ties[RUN];
    ptrdiff_t found = 0, step = m->per_block * 2 * BLOCK_PIXELS;
    const uint8_t *lanes = m->lanes;
    for (ptrdiff_t p = 0; p < m->planes; p++) memset(m->out + p * m->stride, 0, (size_t)(m->blocks * BLOCK_PIXELS));
    for (ptrdiff_t g = 0; g < m->groups; lanes += lanes_of(m, g) * 2 * BLOCK_PIXELS, g++) {
        for (ptrdiff_t at = 0; at < m->blocks; at += RUN) {
            const uint8_t *lane = lanes + at * step;
            ptrdiff_t blocks = m->blocks - at < RUN ? m->blocks - at : RUN;
            for (ptrdiff_t p = 0; p < m->planes; p++)
                if (!(m->empty[p] >> g & 1))
                    lookup(columns_of(m, g, p), (Run){lane, uniform_of(m, lane, g, p),
                        m->out + p * m->stride + at * BLOCK_PIXELS, ties, blocks, step});
            for (ptrdiff_t b = 0; b < blocks; b++) /* all planes of a group have the same ties */
                for (uint64_t left = ties[b]; left; left &= left - 1) {
                    uint64_t pixel = m->first_pixel + (uint64_t)((at + b) * BLOCK_PIXELS + lowest_bit(left));
                    if (found < room) { /* the second counter range: 2^64 + index */
                        store_big_endian(counters + 16 * found, 1);
                        store_big_endian(counters + 16 * found + 8, pixel * (uint64_t)m->groups + (uint64_t)g);
                    }
                    found++;
                }
        }
    }
    return found;
}

/* draw_masks took the other outcome at every tie. This changes it to the column's own where the other 48 bits say so.
 * Returns 0 at a counter that belongs to another pixel. */
static int settle_ties(const Masks *m, const uint8_t *counters, const uint8_t *blocks, ptrdiff_t ties) {
    ptrdiff_t lane_index[64] = {0};
    for (ptrdiff_t g = 1; g < m->groups; g++) lane_index[g] = lane_index[g - 1] + lanes_of(m, g - 1);
    for (ptrdiff_t t = 0; t < ties; t++) {
        uint64_t index = load_big_endian(counters + 16 * t + 8);
        ptrdiff_t g = (ptrdiff_t)(index % (uint64_t)m->groups);
        uint64_t from_first = index / (uint64_t)m->groups - m->first_pixel; /* wraps around for earlier pixels */
        if (from_first >= (uint64_t)(m->blocks * BLOCK_PIXELS)) return 0;
        ptrdiff_t at = (ptrdiff_t)from_first;
        const uint8_t *lane = m->lanes + (at / BLOCK_PIXELS * m->per_block + lane_index[g]) * 2 * BLOCK_PIXELS;
        ptrdiff_t i = at % BLOCK_PIXELS;
        uint8_t column = lane[2 * i + 1];
        if (load_48_bits(blocks + 16 * t) >= m->rest[g * COLUMNS + column]) continue;
        for (ptrdiff_t p = 0; p < m->planes; p++) {
            Columns c = columns_of(m, g, p);
            const uint8_t *uniform = uniform_of(m, lane, g, p);
            m->out[p * m->stride + at] ^= (c.own[column] ^ c.other[column]) & (uniform ? uniform[2 * i] : 255);
        }
    }
    return 1;
}

/* ---------------------------------------------------------------- view, XOR, rebuild */

typedef struct {
    const void *source;
    void *release;
    const uint8_t *masks; /* [planes][stride] */
    ptrdiff_t stride, height, width;
    int block, gain, bits, to_rgb;
    uint32_t keep, drop;
} Strip;

INLINE int clamp(int value, int top) { return value < 0 ? 0 : value > top ? top : value; }

/* Removes the block means from up to 8 rows of one channel, in place. Rows and columns beyond the edge repeat the last.
 * int16_t is enough for 8-bit channels, and twice as many values fit into a vector. */
#define DEFINE_PRUNE(NAME, T)                                                                                         \
    INLINE void NAME(T x[][ROOM], ptrdiff_t rows, ptrdiff_t columns, int block, int gain, int bits) {               \
        T down[ROOM], sums[ROOM];                                                                                     \
        int area = block * block, shift = block == 2 ? 2 : 6;                                                         \
        T add = (T)((area << (bits - 1)) + area / 2), top = (T)((1 << bits) - 1);                                     \
        ptrdiff_t padded = (columns + block - 1) / block * block;                                                    \
        for (ptrdiff_t r = 0; r < rows; r++)                                                                         \
            for (ptrdiff_t i = columns; i < padded; i++) x[r][i] = x[r][columns - 1];                                \
        if (block == 2)                                                                                               \
            for (ptrdiff_t i = 0; i < padded; i++) down[i] = (T)(x[0][i] + x[rows - 1][i]);                          \
        else {                                                                                                        \
            for (ptrdiff_t i = 0; i < padded; i++) down[i] = (T)(x[rows - 1][i] * (T)(block - rows));                \
            for (ptrdiff_t r = 0; r < rows; r++)                                                                     \
                for (ptrdiff_t i = 0; i < padded; i++) down[i] = (T)(down[i] + x[r][i]);                             \
        }                                                                                                             \
        for (ptrdiff_t i = 0; i < padded; i += block) {                                                              \
            T sum = 0;                                                                                                \
            for (int j = 0; j < block; j++) sum = (T)(sum + down[i + j]);                                             \
            for (int j = 0; j < block; j++) sums[i + j] = sum;                                                        \
        }                                                                                                             \
        for (ptrdiff_t r = 0; r < rows; r++)                                                                         \
            for (ptrdiff_t i = 0; i < padded; i++) {                                                                 \
                T y = (T)((T)((T)(area * x[r][i] - sums[i]) * (T)gain + add) >> shift);                               \
                x[r][i] = y < 0 ? 0 : y > top ? top : y;                                                              \
            }                                                                                                         \
    }
DEFINE_PRUNE(prune8, int16_t)
DEFINE_PRUNE(prune16, int32_t)

/* Splitting RGB into planes and the arithmetic are separate loops, because compilers vectorise only those. */
INLINE void load_colour(const uint8_t *restrict rgb, ptrdiff_t n, int16_t *restrict y, int16_t *restrict cb,
    int16_t *restrict cr) {
    uint8_t red[CHUNK], green[CHUNK], blue[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++) {
        red[i] = rgb[3 * i];
        green[i] = rgb[3 * i + 1];
        blue[i] = rgb[3 * i + 2];
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        int r = red[i], g = green[i], b = blue[i];
        y[i] = (int16_t)((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
        cb[i] = (int16_t)((-11059 * r - 21709 * g + (b << 15) + (128 << 16) + 32767) >> 16);
        cr[i] = (int16_t)(((r << 15) - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16);
    }
}

INLINE void randomise(int16_t *restrict x, const uint8_t *restrict mask, int16_t keep, int16_t drop, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) x[i] = (int16_t)(((x[i] ^ mask[i]) & keep) | drop);
}

INLINE void interleave(uint8_t *restrict out, ptrdiff_t n, const uint8_t *restrict a, const uint8_t *restrict b,
    const uint8_t *restrict c) {
    for (ptrdiff_t i = 0; i < n; i++) {
        out[3 * i] = a[i];
        out[3 * i + 1] = b[i];
        out[3 * i + 2] = c[i];
    }
}

/* The coefficients of view.py without their multiples of 65536, which the shift preserves. All factors then fit into
 * 16 bits. */
INLINE void store_colour(uint8_t *restrict out, ptrdiff_t n, const int16_t *restrict y, const int16_t *restrict cb,
    const int16_t *restrict cr, int to_rgb) {
    uint8_t one[CHUNK], two[CHUNK], three[CHUNK];
    if (to_rgb)
        for (ptrdiff_t i = 0; i < n; i++) {
            int16_t b = (int16_t)(cb[i] - 128), r = (int16_t)(cr[i] - 128);
            int16_t red = (int16_t)(y[i] + r + ((26345 * r + 32768) >> 16));
            int16_t green = (int16_t)(y[i] - r + ((-22554 * b + 18734 * r + 32768) >> 16));
            int16_t blue = (int16_t)(y[i] + 2 * b + ((-14942 * b + 32768) >> 16));
            one[i] = (uint8_t)clamp(red, 255);
            two[i] = (uint8_t)clamp(green, 255);
            three[i] = (uint8_t)clamp(blue, 255);
        }
    else
        for (ptrdiff_t i = 0; i < n; i++) {
            one[i] = (uint8_t)y[i];
            two[i] = (uint8_t)cb[i];
            three[i] = (uint8_t)cr[i];
        }
    interleave(out, n, one, two, three);
}

typedef void (*LoadColour)(const uint8_t *rgb, ptrdiff_t n, int16_t *y, int16_t *cb, int16_t *cr);
typedef void (*StoreColour)(uint8_t *out, ptrdiff_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb);

static void load_plain(const uint8_t *rgb, ptrdiff_t n, int16_t *y, int16_t *cb, int16_t *cr) {
    load_colour(rgb, n, y, cb, cr);
}
static void store_plain(uint8_t *out, ptrdiff_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb) {
    store_colour(out, n, y, cb, cr, to_rgb);
}

INLINE void colour_rows(const Strip *s, int block, LoadColour load, StoreColour store) {
    int16_t channel[3][MAX_BLOCK][ROOM];
    for (ptrdiff_t top = 0; top < s->height; top += block) {
        ptrdiff_t rows = s->height - top < block ? s->height - top : block;
        for (ptrdiff_t left = 0; left < s->width; left += CHUNK) {
            ptrdiff_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (ptrdiff_t r = 0; r < rows; r++)
                load((const uint8_t *)s->source + 3 * ((top + r) * s->width + left), n, channel[0][r], channel[1][r],
                    channel[2][r]);
            for (int c = 0; c < 3; c++) {
                int plane = 2 - c; /* plane 0 is the lowest byte of the word, Cr */
                int16_t keep = s->keep >> 8 * plane & 255, drop = s->drop >> 8 * plane & 255;
                if (block > 1) prune8(channel[c], rows, n, block, s->gain, 8);
                for (ptrdiff_t r = 0; r < rows; r++)
                    randomise(channel[c][r], s->masks + plane * s->stride + (top + r) * s->width + left, keep, drop, n);
            }
            for (ptrdiff_t r = 0; r < rows; r++)
                store((uint8_t *)s->release + 3 * ((top + r) * s->width + left), n, channel[0][r], channel[1][r],
                    channel[2][r], s->to_rgb);
        }
    }
}

INLINE void grey_rows(const Strip *s, int block) {
    int16_t x[MAX_BLOCK][ROOM];
    for (ptrdiff_t top = 0; top < s->height; top += block) {
        ptrdiff_t rows = s->height - top < block ? s->height - top : block;
        for (ptrdiff_t left = 0; left < s->width; left += CHUNK) {
            ptrdiff_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (ptrdiff_t r = 0; r < rows; r++) {
                const uint8_t *source = (const uint8_t *)s->source + (top + r) * s->width + left;
                for (ptrdiff_t i = 0; i < n; i++) x[r][i] = source[i];
            }
            if (block > 1) prune8(x, rows, n, block, s->gain, s->bits);
            for (ptrdiff_t r = 0; r < rows; r++) {
                ptrdiff_t at = (top + r) * s->width + left;
                uint8_t *release = (uint8_t *)s->release + at;
                randomise(x[r], s->masks + at, (int16_t)s->keep, (int16_t)s->drop, n);
                for (ptrdiff_t i = 0; i < n; i++) release[i] = (uint8_t)x[r][i];
            }
        }
    }
}

INLINE void deep_grey_rows(const Strip *s, int block) {
    int32_t x[MAX_BLOCK][ROOM];
    for (ptrdiff_t top = 0; top < s->height; top += block) {
        ptrdiff_t rows = s->height - top < block ? s->height - top : block;
        for (ptrdiff_t left = 0; left < s->width; left += CHUNK) {
            ptrdiff_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (ptrdiff_t r = 0; r < rows; r++) {
                const uint16_t *source = (const uint16_t *)s->source + (top + r) * s->width + left;
                for (ptrdiff_t i = 0; i < n; i++) x[r][i] = source[i];
            }
            if (block > 1) prune16(x, rows, n, block, s->gain, s->bits);
            for (ptrdiff_t r = 0; r < rows; r++) {
                ptrdiff_t at = (top + r) * s->width + left;
                const uint8_t *low = s->masks + at, *high = low + s->stride;
                uint16_t *release = (uint16_t *)s->release + at;
                for (ptrdiff_t i = 0; i < n; i++)
                    release[i] = (uint16_t)(((x[r][i] ^ (low[i] | high[i] << 8)) & s->keep) | s->drop);
            }
        }
    }
}

/* The block size is a constant here, so that each case is compiled separately for each instruction set. */
#define DEFINE_FINISH(NAME, TARGET, LOAD, STORE)                                                                      \
    TARGET static void NAME(const Strip *s, int channels) {                                                           \
        if (channels == 3) {                                                                                          \
            if (s->block == 1) colour_rows(s, 1, LOAD, STORE);                                                        \
            else if (s->block == 2) colour_rows(s, 2, LOAD, STORE);                                                   \
            else colour_rows(s, 8, LOAD, STORE);                                                                      \
        } else if (s->bits <= 8) {                                                                                    \
            if (s->block == 1) grey_rows(s, 1);                                                                       \
            else if (s->block == 2) grey_rows(s, 2);                                                                  \
            else grey_rows(s, 8);                                                                                     \
        } else {                                                                                                      \
            if (s->block == 1) deep_grey_rows(s, 1);                                                                  \
            else if (s->block == 2) deep_grey_rows(s, 2);                                                             \
            else deep_grey_rows(s, 8);                                                                                \
        }                                                                                                             \
    }

typedef void (*Finish)(const Strip *s, int channels);

DEFINE_FINISH(finish_plain, , load_plain, store_plain)
