/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays as numpy.save writes them (.npy, versions 1 to 3): ten or twelve bytes, a Python
 * dictionary as text, then the elements. Read are arrays of two dimensions, in C order, of
 * little-endian numbers; anything else is refused before an element is read, and so is a size that
 * is not the file's.
 */
#include "data/data_file.h"

#include "base/num.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

enum { FRAME = 12, DICTIONARY = 4096, BLOCK = 512 /* elements */ };

/* What stands behind "'key':" and blanks, or NULL. */
static const char *entry(const char *dictionary, const char *key)
{
    const char *at = strstr(dictionary, key);
    return at ? at + strlen(key) + strspn(at + strlen(key), " ") : NULL;
}

/* "(1797, 65)" into rows and columns. */
static bool read_shape(const char *s, int64_t size[2])
{
    for (int i = 0; i < 2; i++) {
        size_t n = *s == "(,"[i] ? strspn(s + 1, " ") + 1 : 0, digits = strspn(s + n, "0123456789");
        char word[24] = "";
        if (n == 0 || digits == 0 || digits >= sizeof word)
            return false;
        memcpy(word, s + n, digits);
        if (!text_to_int(word, &size[i]))
            return false;
        s += n + digits;
    }
    return *s == ')';
}

enum err data_npy_open(const struct fs_reader *file, const char *path, struct data_npy *out)
{
    static const char types[] = "<f4 <f8 |u1 |i1 |b1 <u2 <i2 <u4 <i4 <u8 <i8 ";
    uint8_t frame[FRAME];
    char s[DICTIONARY + 1];
    int64_t bytes, size[2];
    *out = (struct data_npy){.bytes = 0};
    if (file->size < FRAME)
        return ERR_OK;
    TRY(fs_reader_get(file, 0, FRAME, frame));
    if (memcmp(frame, "\x93NUMPY", 6) != 0)
        return ERR_OK;
    int wide = frame[6] > 1 ? 4 : 2;
    int64_t n = (int64_t)data_get_le(frame + 8, wide), begin = 8 + wide;
    if (frame[6] < 1 || frame[6] > 3 || n > DICTIONARY || n > file->size - begin)
        FAIL(ERR_DATA, "data: array %s has version %d and a header of %lld bytes, read are "
                       "versions 1 to 3 with at most %d; save it again with numpy.save", path,
             frame[6], (long long)n, DICTIONARY);
    TRY(fs_reader_get(file, begin, n, s));
    s[n] = '\0';
    const char *type = entry(s, "'descr':"), *order = entry(s, "'fortran_order':");
    const char *shape = entry(s, "'shape':"), *known = NULL;
    if (type && *type == '\'' && strlen(type) > 4 && type[4] == '\'')
        for (known = types; *known && memcmp(known, type + 1, 3) != 0; known += 4)
            ;
    if (!known || !*known)
        FAIL(ERR_DATA, "data: array %s has elements of another kind than %s(its header: %.80s); "
                       "save it as float32", path, types, s);
    if (!order || strncmp(order, "False", 5) != 0 || !shape || !read_shape(shape, size))
        FAIL(ERR_DATA, "data: array %s is not one of two dimensions in C order (its header: "
                       "%.80s); save a row for each sample", path, s);
    *out = (struct data_npy){size[0], size[1], begin + n, known[2] - '0', known[1]};
    if (!num_mul(out->rows, out->columns, &bytes) || !num_mul(bytes, out->bytes, &bytes) ||
        bytes != file->size - out->at)
        FAIL(ERR_DATA, "data: array %s says %lld x %lld elements of %d bytes behind a header of "
                       "%lld, the file has %lld bytes; it is cut or damaged, save it again", path,
             (long long)out->rows, (long long)out->columns, out->bytes, (long long)out->at,
             (long long)file->size);
    return ERR_OK;
}

static double element(const struct data_npy *a, const uint8_t *p)
{
    uint64_t bits = data_get_le(p, a->bytes);
    uint32_t low = (uint32_t)bits;
    float single;
    double whole;
    if (a->type == 'f') {
        memcpy(&single, &low, sizeof single);
        memcpy(&whole, &bits, sizeof whole);
        return a->bytes == 4 ? (double)single : whole;
    }
    int above = 64 - 8 * a->bytes;
    return a->type == 'i' ? (double)((int64_t)(bits << above) >> above) : (double)bits;
}

enum err data_npy_row(const struct fs_reader *file, const char *path, const struct data_npy *a,
                      int64_t row, double *out)
{
    uint8_t block[BLOCK * 8];
    for (int64_t at = 0, n; at < a->columns; at += n) {
        n = num_min(BLOCK, a->columns - at);
        TRY(fs_reader_get(file, a->at + (row * a->columns + at) * a->bytes, n * a->bytes, block));
        for (int64_t i = 0; i < n; i++) {
            out[at + i] = element(a, block + i * a->bytes);
            if (!isfinite(out[at + i]))
                FAIL(ERR_DATA, "data: row %lld, column %lld of %s is %g, the rule is a finite "
                               "number", (long long)row + 1, (long long)(at + i) + 1, path,
                     out[at + i]);
        }
    }
    return ERR_OK;
}
