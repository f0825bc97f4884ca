/* The element-wise part of one LSTM step; included once for each instruction set.
 *
 * The including file defines NAME(f), TARGET and MADD(a, b, c). The loops are plain C that
 * compilers turn into vector code; no element depends on another, so neither the order of the
 * rows nor the width of a vector can change a result of one instruction set.
 */

/* tanh as a ratio of two polynomials, within a few units in the last place of 1. */
static inline TARGET float NAME(ratio_tanh)(float x)
{
    const float bound = 7.90531110763549805f; /* beyond it tanh is 1 in float32 */
    x = x > bound ? bound : x;
    x = x < -bound ? -bound : x;
    float x2 = x * x;
    float p = MADD(x2, -2.76076847742355e-16f, 2.00018790482477e-13f);
    p = MADD(x2, p, -8.60467152213735e-11f);
    p = MADD(x2, p, 5.12229709037114e-08f);
    p = MADD(x2, p, 1.48572235717979e-05f);
    p = MADD(x2, p, 6.37261928875436e-04f);
    p = MADD(x2, p, 4.89352455891786e-03f);
    float q = MADD(x2, 1.19825839466702e-06f, 1.18534705686654e-04f);
    q = MADD(x2, q, 2.26843463243900e-03f);
    q = MADD(x2, q, 4.89352518554385e-03f);
    return x * p / q;
}

static inline TARGET float NAME(ratio_sigmoid)(float x)
{
    return MADD(0.5f, NAME(ratio_tanh)(0.5f * x), 0.5f);
}

static TARGET void NAME(forward_row)(
    float *restrict output,        /* (cells,) */
    float *restrict gates,         /* (4 * cells,): in, forget, candidate, out; activated here */
    float *restrict cell,        /* (cells,): before, then after */
    float *restrict kept_cell,   /* (cells,) */
    float *restrict kept_tanh_cell, /* (cells,) */
    float clip, int64_t cells)
{
    float *in = gates, *forget = gates + cells, *candidate = gates + 2 * cells,
          *out = gates + 3 * cells;
    for (int64_t k = 0; k < cells; k++) {
        float i = NAME(ratio_sigmoid)(in[k]), f = NAME(ratio_sigmoid)(forget[k]);
        float g = NAME(ratio_tanh)(candidate[k]), o = NAME(ratio_sigmoid)(out[k]);
        float c = MADD(i, g, f * cell[k]);
        c = c > clip ? clip : c;
        c = c < -clip ? -clip : c;
        float tanh_cell = NAME(ratio_tanh)(c);
        in[k] = i;
        forget[k] = f;
        candidate[k] = g;
        out[k] = o;
        cell[k] = c;
        kept_cell[k] = c;
        kept_tanh_cell[k] = tanh_cell;
        output[k] = o * tanh_cell;
    }
}

/* Some cells of one row whose state product lies in a tile of panels.h; nothing is kept. */
static inline TARGET void NAME(some_cells)(
    float *restrict output,      /* (cells,) */
    float *restrict cell,      /* (cells,): before, then after */
    const float *restrict tile,  /* (4, 16): the state's share of the gates of cells `first`... */
    const float *restrict gates, /* (4 * cells,): the input's share with biases */
    float clip, int64_t cells, int64_t first, int64_t count)
{
    gates += first;
    output += first;
    cell += first;
    for (int64_t k = 0; k < count; k++) {
        float i = NAME(ratio_sigmoid)(gates[k] + tile[k]);
        float f = NAME(ratio_sigmoid)(gates[cells + k] + tile[16 + k]);
        float g = NAME(ratio_tanh)(gates[2 * cells + k] + tile[32 + k]);
        float o = NAME(ratio_sigmoid)(gates[3 * cells + k] + tile[48 + k]);
        float c = MADD(i, g, f * cell[k]);
        c = c > clip ? clip : c;
        c = c < -clip ? -clip : c;
        cell[k] = c;
        output[k] = o * NAME(ratio_tanh)(c);
    }
}

static TARGET void NAME(cells)(float *output, float *cell, const float *tile, const float *gates,
                               float clip, int64_t cells, int64_t first)
{
    if (cells - first >= 16)
        NAME(some_cells)(output, cell, tile, gates, clip, cells, first, 16);
    else
        NAME(some_cells)(output, cell, tile, gates, clip, cells, first, cells - first);
}

static TARGET void NAME(backward_row)(
    float *restrict d_gates,         /* (4 * cells,) */
    float *restrict d_cell,        /* (cells,): of the cell after, then of the cell before */
    const float *restrict d_output,  /* (cells,) */
    const float *restrict gates,     /* (4 * cells,), activated */
    const float *restrict cell,    /* (cells,), after the clip */
    const float *restrict tanh_cell,  /* (cells,) */
    const float *restrict before,    /* (cells,) */
    float clip, int64_t cells)
{
    const float *in = gates, *forget = gates + cells, *candidate = gates + 2 * cells,
                *out = gates + 3 * cells;
    float *d_in = d_gates, *d_forget = d_gates + cells, *d_candidate = d_gates + 2 * cells,
          *d_out = d_gates + 3 * cells;
    for (int64_t k = 0; k < cells; k++) {
        float i = in[k], f = forget[k], g = candidate[k], o = out[k], s = tanh_cell[k];
        float d = d_cell[k] + d_output[k] * o * (1.0f - s * s);
        float c = cell[k];
        d = ((c < clip) & (c > -clip)) ? d : 0.0f;
        d_out[k] = d_output[k] * s * (o * (1.0f - o));
        d_in[k] = d * g * (i * (1.0f - i));
        d_forget[k] = d * before[k] * (f * (1.0f - f));
        d_candidate[k] = d * i * (1.0f - g * g);
        d_cell[k] = d * f;
    }
}

static TARGET void NAME(forward)(
    float *output, float *gates, float *cell, float *kept_cell, float *kept_tanh_cell,
    float clip, int64_t rows, int64_t cells)
{
    for (int64_t r = 0; r < rows; r++)
        NAME(forward_row)(output + r * cells, gates + r * 4 * cells, cell + r * cells,
                          kept_cell + r * cells, kept_tanh_cell + r * cells, clip, cells);
}

static TARGET void NAME(backward)(
    float *d_gates, float *d_cell, const float *d_output, const float *gates,
    const float *cell, const float *tanh_cell, const float *before, float clip, int64_t rows,
    int64_t cells)
{
    for (int64_t r = 0; r < rows; r++)
        NAME(backward_row)(d_gates + r * 4 * cells, d_cell + r * cells, d_output + r * cells,
                           gates + r * 4 * cells, cell + r * cells, tanh_cell + r * cells,
                           before + r * cells, clip, cells);
}
