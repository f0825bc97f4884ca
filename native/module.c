/* The method table of elmore._native. Every pointer and size was checked in Python (kernels/). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"
#include "lstm.h"

/* Filled once at import, by the best instruction set that the machine has. */
static const lstm_kernels *lstm;

#define POINTER(x) ((float *)(uintptr_t)(x))

/* cpu() -> tuple of the names of the instruction sets that kernels may use here */
static PyObject *native_cpu(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    cpu_features found = cpu_detect();
    const char *names[] = {"avx2", "avx512", "avx512_vnni"};
    const int present[] = {found.avx2, found.avx512, found.avx512_vnni};
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    for (int i = 0; i < 3; i++) {
        if (!present[i])
            continue;
        PyObject *name = PyUnicode_FromString(names[i]);
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

/* force(name) -> bool: use an instruction set in all kernels; False if it is not there */
static PyObject *native_force(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    cpu_features found = cpu_detect();
    const lstm_kernels *wanted = lstm_find(name);
    if (wanted == NULL || (strcmp(name, "avx2") == 0 && !found.avx2) ||
        (strcmp(name, "avx512") == 0 && !found.avx512))
        Py_RETURN_FALSE;
    lstm = wanted;
    Py_RETURN_TRUE;
}

/* lstm_forward(output, gates, memory, kept_memory, kept_squashed, clip, rows, cells) */
static PyObject *native_lstm_forward(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long output, gates, memory, kept_memory, kept_squashed;
    float clip;
    long long rows, cells;
    if (!PyArg_ParseTuple(args, "KKKKKfLL", &output, &gates, &memory, &kept_memory, &kept_squashed,
                          &clip, &rows, &cells))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    lstm->forward(POINTER(output), POINTER(gates), POINTER(memory), POINTER(kept_memory),
                  POINTER(kept_squashed), clip, rows, cells);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* lstm_backward(d_gates, d_memory, d_output, gates, memory, squashed, before, clip, rows, cells) */
static PyObject *native_lstm_backward(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long d_gates, d_memory, d_output, gates, memory, squashed, before;
    float clip;
    long long rows, cells;
    if (!PyArg_ParseTuple(args, "KKKKKKKfLL", &d_gates, &d_memory, &d_output, &gates, &memory,
                          &squashed, &before, &clip, &rows, &cells))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    lstm->backward(POINTER(d_gates), POINTER(d_memory), POINTER(d_output), POINTER(gates),
                   POINTER(memory), POINTER(squashed), POINTER(before), clip, rows, cells);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"cpu", native_cpu, METH_NOARGS, "cpu() -> names of usable instruction sets"},
    {"force", native_force, METH_VARARGS, "force(name) -> whether that instruction set is used now"},
    {"lstm_forward", native_lstm_forward, METH_VARARGS, "element-wise part of an LSTM step"},
    {"lstm_backward", native_lstm_backward, METH_VARARGS, "its derivative"},
    {NULL, NULL, 0, NULL},
};

static int choose(PyObject *module)
{
    (void)module;
    cpu_features found = cpu_detect();
    const char *best = found.avx512 ? "avx512" : found.avx2 ? "avx2" : "plain";
    lstm = lstm_find(best);
    if (lstm == NULL)
        lstm = lstm_find("plain");
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
