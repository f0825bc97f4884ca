/* The method table of elmore._native. Every pointer and size was checked in Python (kernels/). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "charcnn.h"
#include "cpu.h"
#include "denormals.h"
#include "lstm.h"
#include "panels.h"
#include "rank.h"
#include "recurrence.h"

/* Filled once at import, by the best instruction set that the machine has. */
static const lstm_kernels *lstm;
static const panels_kernels *panels;
static const charcnn_kernels *charcnn;
static const rank_kernels *rank;

#define POINTER(x) ((float *)(uintptr_t)(x))
#define ADDRESS(type, x) ((type *)(uintptr_t)(x))

/* cpu() -> tuple of the names of the instruction sets beside plain C that kernels may use here */
static PyObject *native_cpu(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    for (int i = 1; i < CPU_SETS; i++) {
        if (!cpu_has(cpu_sets[i]))
            continue;
        PyObject *name = PyUnicode_FromString(cpu_sets[i]);
        if (name == NULL || PyList_Append(list, name) < 0) {
            Py_XDECREF(name);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(name);
    }
    PyObject *result = PyList_AsTuple(list);
    Py_DECREF(list);
    return result;
}

static void use(const char *name)
{
    lstm = lstm_find(name);
    panels = panels_find(name);
    charcnn = charcnn_find(name);
    rank = rank_find(name);
}

/* force(name) -> bool: use an instruction set in all kernels; False if it is not there */
static PyObject *native_force(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    if (!cpu_has(name))
        Py_RETURN_FALSE;
    use(name);
    Py_RETURN_TRUE;
}

/* lstm_forward(output, gates, cell, kept_cell, kept_tanh_cell, clip, rows, cells) */
static PyObject *native_lstm_forward(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long output, gates, cell, kept_cell, kept_tanh_cell;
    float clip;
    long long rows, cells;
    if (!PyArg_ParseTuple(args, "KKKKKfLL", &output, &gates, &cell, &kept_cell, &kept_tanh_cell,
                          &clip, &rows, &cells))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    FLUSHED(lstm->forward(POINTER(output), POINTER(gates), POINTER(cell), POINTER(kept_cell),
                          POINTER(kept_tanh_cell), clip, rows, cells));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* lstm_backward(d_gates, d_cell, d_output, gates, cell, tanh_cell, before, clip, rows, cells) */
static PyObject *native_lstm_backward(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long d_gates, d_cell, d_output, gates, cell, tanh_cell, before;
    float clip;
    long long rows, cells;
    if (!PyArg_ParseTuple(args, "KKKKKKKfLL", &d_gates, &d_cell, &d_output, &gates, &cell,
                          &tanh_cell, &before, &clip, &rows, &cells))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    FLUSHED(lstm->backward(POINTER(d_gates), POINTER(d_cell), POINTER(d_output), POINTER(gates),
                           POINTER(cell), POINTER(tanh_cell), POINTER(before), clip, rows,
                           cells));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* panels_bytes(n, k, kind), panels_workspace(k, kind),
 * recurrence_workspace(rows, cells, dim, kind of state, kind of project) */
static PyObject *native_panels_bytes(PyObject *self, PyObject *args)
{
    (void)self;
    long long n, k;
    int kind;
    if (!PyArg_ParseTuple(args, "LLi", &n, &k, &kind))
        return NULL;
    return PyLong_FromLongLong(panels_bytes(n, k, kind));
}

static PyObject *native_panels_workspace(PyObject *self, PyObject *args)
{
    (void)self;
    long long k;
    int kind;
    if (!PyArg_ParseTuple(args, "Li", &k, &kind))
        return NULL;
    return PyLong_FromLongLong(panels_workspace(k, kind));
}

static PyObject *native_recurrence_workspace(PyObject *self, PyObject *args)
{
    (void)self;
    long long rows, cells, dim;
    int state, project;
    if (!PyArg_ParseTuple(args, "LLLii", &rows, &cells, &dim, &state, &project))
        return NULL;
    return PyLong_FromLongLong(recurrence_workspace(rows, cells, dim, state, project));
}

/* panels_pack(packed, sums, values, n, k, kind, gates) */
static PyObject *native_panels_pack(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long packed, sums, values;
    long long n, k;
    int kind, gates;
    if (!PyArg_ParseTuple(args, "KKKLLii", &packed, &sums, &values, &n, &k, &kind, &gates))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    panels_pack(ADDRESS(void, packed), ADDRESS(int32_t, sums), ADDRESS(void, values), n, k, kind,
                gates);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* panels_affine(output, (panels, scales, sums, n, k, kind), input, bias, workspace, bound, rows) */
static PyObject *native_panels_affine(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long output, at, scales, sums, input, bias, workspace;
    long long n, k, rows;
    int kind;
    float bound;
    if (!PyArg_ParseTuple(args, "K(KKKLLi)KKKfL", &output, &at, &scales, &sums, &n, &k, &kind,
                          &input, &bias, &workspace, &bound, &rows))
        return NULL;
    panels_matrix matrix = {ADDRESS(void, at), POINTER(scales), ADDRESS(int32_t, sums), n, k, kind};
    Py_BEGIN_ALLOW_THREADS
    FLUSHED(panels_affine(panels, POINTER(output), &matrix, POINTER(input), POINTER(bias),
                          ADDRESS(void, workspace), bound, rows));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* recurrence(output, cell, gates, rows, hidden, sizes, state, project, cell_clip, output_clip,
 *            steps, cells, dim, workspace, packed, batch, n_gates) -> whether sizes and rows fit the
 * three numbers of rows; if not, nothing was done. State and project as the matrix above. */
static PyObject *native_recurrence(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long output, cell, gates, rows, hidden, sizes, workspace, state[3], project[3];
    long long state_n, state_k, project_n, project_k, steps, cells, dim, packed, batch, n_gates;
    int state_kind, project_kind;
    float cell_clip, output_clip;
    if (!PyArg_ParseTuple(args, "KKKKKK(KKKLLi)(KKKLLi)ffLLLKLLL", &output, &cell, &gates, &rows,
                          &hidden, &sizes, &state[0], &state[1], &state[2], &state_n, &state_k,
                          &state_kind, &project[0], &project[1], &project[2], &project_n,
                          &project_k, &project_kind, &cell_clip, &output_clip, &steps, &cells, &dim,
                          &workspace, &packed, &batch, &n_gates))
        return NULL;
    recurrence run = {
        POINTER(output), POINTER(cell), POINTER(gates), ADDRESS(int64_t, rows), POINTER(hidden),
        ADDRESS(int64_t, sizes),
        {ADDRESS(void, state[0]), POINTER(state[1]), ADDRESS(int32_t, state[2]), state_n, state_k,
         state_kind},
        {ADDRESS(void, project[0]), POINTER(project[1]), ADDRESS(int32_t, project[2]), project_n,
         project_k, project_kind},
        cell_clip, output_clip, steps, cells, dim};
    if (!recurrence_fits(&run, packed, batch, n_gates))
        Py_RETURN_FALSE;
    Py_BEGIN_ALLOW_THREADS
    FLUSHED(recurrence_run(panels, lstm, &run, ADDRESS(void, workspace)));
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

/* charcnn(output, ids, tails, tables, bias, words, chars, characters, width, count, stride) */
static PyObject *native_charcnn(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long output, ids, tails, tables, bias;
    long long words, chars, characters, width, count, stride;
    if (!PyArg_ParseTuple(args, "KKKKKLLLLLL", &output, &ids, &tails, &tables, &bias, &words,
                          &chars, &characters, &width, &count, &stride))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    FLUSHED(charcnn->largest(POINTER(output), ADDRESS(int32_t, ids), ADDRESS(int64_t, tails),
                             POINTER(tables), POINTER(bias), words, chars, characters, width,
                             count, stride));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* rank_workspace(n) -> bytes */
static PyObject *native_rank_workspace(PyObject *self, PyObject *args)
{
    (void)self;
    long long n;
    if (!PyArg_ParseTuple(args, "L", &n))
        return NULL;
    return PyLong_FromLongLong(rank_bytes(n));
}

/* rank(ids, best, total, values, workspace, rows, n, k) -> whether every row has k values */
static PyObject *native_rank(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long ids, best, total, values, workspace;
    long long rows, n, k;
    int complete;
    if (!PyArg_ParseTuple(args, "KKKKKLLL", &ids, &best, &total, &values, &workspace, &rows, &n,
                          &k))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    FLUSHED(complete = rank->rows(ADDRESS(int32_t, ids), POINTER(best), POINTER(total),
                                  POINTER(values), ADDRESS(uint64_t, workspace), rows, n, k));
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(complete);
}

static PyMethodDef methods[] = {
    {"cpu", native_cpu, METH_NOARGS, "cpu() -> names of usable instruction sets"},
    {"force", native_force, METH_VARARGS, "force(name) -> whether that instruction set is used now"},
    {"lstm_forward", native_lstm_forward, METH_VARARGS, "element-wise part of an LSTM step"},
    {"lstm_backward", native_lstm_backward, METH_VARARGS, "its derivative"},
    {"panels_bytes", native_panels_bytes, METH_VARARGS, "size of a packed matrix"},
    {"panels_workspace", native_panels_workspace, METH_VARARGS, "what panels_affine needs"},
    {"panels_pack", native_panels_pack, METH_VARARGS, "pack a matrix"},
    {"panels_affine", native_panels_affine, METH_VARARGS, "product with a packed matrix"},
    {"recurrence_workspace", native_recurrence_workspace, METH_VARARGS, "what recurrence needs"},
    {"recurrence", native_recurrence, METH_VARARGS, "some steps of a projected LSTM"},
    {"charcnn", native_charcnn, METH_VARARGS, "largest responses of character filters"},
    {"rank_workspace", native_rank_workspace, METH_VARARGS, "what rank needs"},
    {"rank", native_rank, METH_VARARGS, "largest values of rows, and sums of exps"},
    {NULL, NULL, 0, NULL},
};

static int choose(PyObject *module)
{
    (void)module;
    use(cpu_best());
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, choose},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "Kernels of elmore.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
