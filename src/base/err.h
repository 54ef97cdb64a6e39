/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors are values. A function that can fail returns `enum err`; the function that first decides
 * which error it is says so once, with FAIL and the numbers; callers hand it upwards with TRY.
 * The text lives in thread-local storage, so a rank that is a thread has its own.
 *
 * Message form: what was asked, what stands against it in numbers, what to do. Lower case, no
 * trailing stop. A message has one opening: a key, a rank, a file and line, or where there is none
 * of these the folder. Whoever knows better what it is about puts that in the place of
 * the folder (err_bare). Example:
 *     plan: 32 layers do not cut into 5 stages of equal size; use pp 1, 2, 4, 8, 16
 */
#ifndef PLAIT_BASE_ERR_H
#define PLAIT_BASE_ERR_H

#include <stdbool.h>

/* clang checks every call that yields this type; gcc knows the attribute on functions only. */
#if defined(__clang__)
#define ERR_MUST_USE __attribute__((warn_unused_result))
#else
#define ERR_MUST_USE
#endif

/* The value of each code is also the exit code of the program; docs/exit-codes.md lists them. */
enum ERR_MUST_USE err {
    ERR_OK = 0,
    ERR_CONFIG = 10,     /* usage or configuration: the user can mend it in the config or command */
    ERR_MISMATCH = 11,   /* ranks differ in program, config or data */
    ERR_DATA = 12,       /* token file missing, foreign, truncated */
    ERR_TOKEN = 13,      /* tokenizer or vocabulary does not fit */
    ERR_CHECKPOINT = 14, /* weights or checkpoint invalid */
    ERR_LAYOUT = 15,     /* weights cannot be loaded in this layout */
    ERR_LOCKED = 16,     /* run directory in use by another run */
    ERR_STORAGE = 17,    /* disk full, unwritable, I/O error */
    ERR_NONFINITE = 18,  /* loss or gradient norm is NaN or infinite */
    ERR_HANG = 20,       /* a peer did not answer in time */
    ERR_PEER = 21,       /* a peer is lost or has failed */
    ERR_MEMORY = 22,     /* host or device memory */
    ERR_INTERNAL = 70,   /* plait's own mistake */
    ERR_STOPPED = 75,    /* asked to stop, and did; work is left */
};

/* Record the message of a new error in this thread and return `code`. Local. */
enum err err_set(enum err code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Add one line to the trail of the current error ("file:line"), at most 16. Local. */
void err_trail(const char *file, int line);

/* Text of the last error of this thread ("" when none); valid until the next FAIL. Local. */
const char *err_text(void);

/* `text` behind the area that it opens with ("data: ", "storage: "); all of it when it opens with
 * none. Local. */
const char *err_bare(const char *text);

/* The trail of the last error of this thread, as one string. Local. */
const char *err_trace(void);

/* Copy an error from another thread (a rank) into this one; returns `code`. Local. */
enum err err_adopt(enum err code, const char *text);

/* An error put aside while what follows from it is done (weights are saved, files closed), which
 * may fail too. err_again: it is this thread's once more, trail and all; returns its code. ERR_OK
 * is kept as well. Local. */
enum { ERR_TEXT = 4096, ERR_TRAIL = 1024 };
struct err_kept { enum err code; char text[ERR_TEXT], trail[ERR_TRAIL]; };
void err_keep(struct err_kept *k, enum err code);
enum err err_again(const struct err_kept *k);

/* Stop the process with a message: an invariant of plait itself is broken. Never returns. */
void err_bug(const char *file, int line, const char *what) __attribute__((noreturn));
/* End the process at once, where a call of the system that nobody can interrupt does not return.
 * The message has been said. Never returns. */
void err_leave(enum err code) __attribute__((noreturn));

/* A new error of here, for who has something to undo before it is returned. */
#define ERR(code, ...) err_set((code), __FILE__, __LINE__, __VA_ARGS__)

/* The code is returned as written, so that compilers see that it is not ERR_OK. */
#define FAIL(code, ...)                                                                            \
    do {                                                                                           \
        enum err fail_err_ = ERR((code), __VA_ARGS__);                                             \
        (void)fail_err_;                                                                           \
        return (code);                                                                             \
    } while (0)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err try_err_ = (call);                                                                \
        if (try_err_ != ERR_OK) {                                                                  \
            err_trail(__FILE__, __LINE__);                                                         \
            return try_err_;                                                                       \
        }                                                                                          \
    } while (0)

/* As TRY, for functions that must undo something: sets the variable `err` and jumps. */
#define TRY_OR(label, call)                                                                        \
    do {                                                                                           \
        err = (call);                                                                              \
        if (err != ERR_OK) {                                                                       \
            err_trail(__FILE__, __LINE__);                                                         \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* Always on: an invariant of ours. Not for the user's mistakes. */
#define ENSURE(cond)                                                                               \
    do {                                                                                           \
        if (!(cond))                                                                               \
            err_bug(__FILE__, __LINE__, #cond);                                                    \
    } while (0)

#endif
