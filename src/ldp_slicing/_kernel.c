/* The compiled backend: _kernel.h as a Python module, for a strip of one image or for several small images.
 *
 * On x86-64 the loops are compiled for several instruction sets (_kernel_x86.h), and the module selects the fastest one
 * when it is loaded. This file checks every size that comes from Python.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include "_kernel_x86.h"
#else
#include "_kernel.h"
#endif

typedef struct {
    const char *name;
    Lookup lookup;
    Finish finish;
} Variant;

#ifdef X86
static const Variant variants[] = {
    {"portable", lookup_plain, finish_plain},
    {"avx2", lookup_avx2, finish_avx2},
    {"avx512vbmi", lookup_vbmi, finish_vbmi}};
static int supported(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 1;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") ? 3 : 2;
}
#else
static const Variant variants[] = {{"portable", lookup_plain, finish_plain}};
static int supported(void) { return 1; }
#endif

/* ---------------------------------------------------------------- Python */

typedef struct {
    Py_buffer lanes, first, rest, outcome, uniform, out, ties; /* lanes, out and ties begin with an axis of images */
    Py_ssize_t images;
    Masks m; /* of the first image */
} MaskArguments;

static void release_arguments(MaskArguments *a) {
    Py_buffer *all[] = {&a->lanes, &a->first, &a->rest, &a->outcome, &a->uniform, &a->out, &a->ties};
    for (int i = 0; i < 7; i++) PyBuffer_Release(all[i]);
}

static int check_variant(int variant) {
    if (variant >= 0 && variant < supported()) return 1;
    PyErr_Format(PyExc_ValueError, "this processor does not have variant %d of the kernel", variant);
    return 0;
}

/* The product of two sizes, or -1 if one is negative or the product overflows. */
static Py_ssize_t product(Py_ssize_t a, Py_ssize_t b) {
    return a < 0 || b < 0 || (b > 0 && a > PY_SSIZE_T_MAX / b) ? -1 : a * b;
}

/* Checks all sizes against each other, so that no call from Python can read or write outside a buffer. */
static int check_arguments(MaskArguments *a, Py_ssize_t offset) {
    Masks *m = &a->m;
    Py_ssize_t images = a->ties.len / (Py_ssize_t)sizeof(int64_t);
    m->groups = a->uniform.len;
    if (images < 1 || a->ties.len % (Py_ssize_t)sizeof(int64_t)) goto wrong;
    if (m->groups < 1 || m->groups > 64 || m->planes < 1 || m->planes > MAX_PLANES) goto wrong;
    if (a->first.len != m->groups * COLUMNS || a->rest.len != a->first.len * 8 ||
        a->outcome.len != m->groups * 2 * m->planes * COLUMNS) goto wrong;
    m->uniform = a->uniform.buf;
    m->per_block = 0;
    for (Py_ssize_t g = 0; g < m->groups; g++) m->per_block += lanes_of(m, g);
    Py_ssize_t block_bytes = m->per_block * 2 * BLOCK_PIXELS;
    m->blocks = a->lanes.len / block_bytes / images;
    m->stride = a->out.len / m->planes / images;
    if (a->lanes.len != images * m->blocks * block_bytes || a->out.len != images * m->planes * m->stride ||
        offset < 0 || offset > m->stride || m->blocks > (m->stride - offset) / BLOCK_PIXELS) goto wrong;
    m->lanes = a->lanes.buf;
    m->first = a->first.buf;
    m->rest = a->rest.buf;
    m->outcome = a->outcome.buf;
    m->out = (uint8_t *)a->out.buf + offset;
    a->images = images;
    return 1;
wrong:
    PyErr_SetString(PyExc_ValueError, "the sizes of lanes, tables and masks do not belong together");
    return 0;
}

static void to_next_image(Masks *m) {
    m->lanes += m->blocks * m->per_block * 2 * BLOCK_PIXELS;
    m->out += m->planes * m->stride;
}

#define TABLE_FORMAT "y*y*y*y*y*nKw*nw*"
#define TABLE_TARGETS(a, first_pixel, offset)                                                                         \
    &a.lanes, &a.first, &a.rest, &a.outcome, &a.uniform, &a.m.planes, &first_pixel, &a.out, &offset, &a.ties

static PyObject *py_draw(PyObject *self, PyObject *args) {
    (void)self;
    MaskArguments a;
    Py_buffer counters;
    unsigned long long first_pixel;
    Py_ssize_t offset, ties = -1;
    int variant;
    if (!PyArg_ParseTuple(args, "i" TABLE_FORMAT "w*", &variant, TABLE_TARGETS(a, first_pixel, offset),
        &counters)) return NULL;
    a.m.first_pixel = first_pixel;
    if (check_arguments(&a, offset) && check_variant(variant)) {
        Masks m = a.m;
        int64_t *found = a.ties.buf;
        Py_ssize_t room = counters.len / 16;
        Py_BEGIN_ALLOW_THREADS
        ties = 0;
        find_empty(&m);
        for (Py_ssize_t i = 0; i < a.images; i++, to_next_image(&m)) {
            Py_ssize_t used = ties < room ? ties : room;
            found[i] = draw_masks(&m, variants[variant].lookup, (uint8_t *)counters.buf + 16 * used, room - used);
            ties += (Py_ssize_t)found[i];
        }
        Py_END_ALLOW_THREADS
    }
    release_arguments(&a);
    PyBuffer_Release(&counters);
    return ties < 0 ? NULL : PyLong_FromSsize_t(ties);
}

static PyObject *py_settle(PyObject *self, PyObject *args) {
    (void)self;
    MaskArguments a;
    Py_buffer counters, blocks;
    unsigned long long first_pixel;
    Py_ssize_t offset;
    int ok = 0;
    if (!PyArg_ParseTuple(args, TABLE_FORMAT "y*y*", TABLE_TARGETS(a, first_pixel, offset), &counters,
        &blocks)) return NULL;
    a.m.first_pixel = first_pixel;
    if (check_arguments(&a, offset)) {
        Masks m = a.m;
        const int64_t *ties = a.ties.buf;
        Py_ssize_t at = 0, end = counters.len / 16;
        ok = counters.len == blocks.len && counters.len % 16 == 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; ok && i < a.images; i++, to_next_image(&m)) {
            Py_ssize_t count = ties[i] >= 0 && ties[i] <= end - at ? (Py_ssize_t)ties[i] : -1;
            ok = count >= 0 && settle_ties(&m, (uint8_t *)counters.buf + 16 * at, (uint8_t *)blocks.buf + 16 * at,
                count);
            at += count;
        }
        ok = ok && at == end;
        Py_END_ALLOW_THREADS
        if (!ok) PyErr_SetString(PyExc_ValueError, "the counters are not those of these pixels");
    }
    release_arguments(&a);
    PyBuffer_Release(&counters);
    PyBuffer_Release(&blocks);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_finish(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer source, release, masks;
    Strip s;
    Py_ssize_t images;
    int variant, channels, item, planes;
    unsigned int keep, drop;
    if (!PyArg_ParseTuple(args, "iy*w*y*nnniiiiIIi", &variant, &source, &release, &masks, &images, &s.height, &s.width,
        &channels, &s.bits, &s.block, &s.gain, &keep, &drop, &s.to_rgb))
        return NULL;
    item = s.bits > 8 ? 2 : 1;
    planes = channels == 3 ? 3 : item;
    int ok = (channels == 3 ? s.bits == 8 : channels == 1 && s.bits >= 1 && s.bits <= 16) &&
             (s.block == 1 || s.block == 2 || s.block == 8) &&
             (s.gain == 1 || (s.block == 2 && s.gain >= 1 && s.gain <= 8)) &&
             images >= 1 && s.height >= 0 && s.width >= 0 &&
             source.len == product(product(images, product(s.height, s.width)), channels * item) &&
             release.len == source.len && product(images, planes) > 0 && masks.len % product(images, planes) == 0 &&
             masks.len / planes / images >= product(s.height, s.width);
    if (ok && (ok = check_variant(variant))) {
        s.source = source.buf;
        s.release = release.buf;
        s.masks = masks.buf;
        s.stride = masks.len / planes / images;
        s.keep = keep;
        s.drop = drop;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < images && source.len > 0; i++) {
            variants[variant].finish(&s, channels);
            s.source = (const uint8_t *)s.source + source.len / images;
            s.release = (uint8_t *)s.release + source.len / images;
            s.masks += planes * s.stride;
        }
        Py_END_ALLOW_THREADS
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the sizes of source, release and masks do not belong together");
    PyBuffer_Release(&source);
    PyBuffer_Release(&release);
    PyBuffer_Release(&masks);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"draw", py_draw, METH_VARARGS,
     "draw(variant, lanes, first, rest, outcome, uniform, planes, first_pixel, out, offset, ties, counters) "
     "-> number of ties"},
    {"settle", py_settle, METH_VARARGS,
     "settle(lanes, first, rest, outcome, uniform, planes, first_pixel, out, offset, ties, counters, blocks)"},
    {"finish", py_finish, METH_VARARGS,
     "finish(variant, source, release, masks, images, height, width, channels, bits, "
     "block, gain, keep, drop, to_rgb)"},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
#ifdef X86
    fill_shuffle();
#endif
    PyObject *names = PyTuple_New(supported());
    for (int i = 0; names && i < supported(); i++) {
        PyObject *name = PyUnicode_FromString(variants[i].name);
        if (!name || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
    }
    int failed = !names || PyModule_AddObjectRef(module, "variants", names) < 0;
    Py_XDECREF(names);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel",
    "Draw masks and apply views to strips of images.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }
