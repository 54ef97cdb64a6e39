/* SPDX-License-Identifier: Apache-2.0
 *
 * The program from outside, started as a shell would start it, without a shell.
 */
#ifndef PLAIT_TEST_PROGRAM_H
#define PLAIT_TEST_PROGRAM_H

enum { PROGRAM_CAPTURE = 1 << 16 };

struct outcome {
    int code; /* exit code, or 128 + signal */
    char out[PROGRAM_CAPTURE], err[PROGRAM_CAPTURE];
};

/* Run plait with these words (NULL at the end). out NULL: standard output is captured; else the
 * path that it goes to. */
void program_run(struct outcome *o, const char *out, const char *const *words);
#define RUN(o, ...) program_run((o), NULL, (const char *const[]){__VA_ARGS__, NULL})

#endif
