/* The method table of elmore._native. Every argument was checked in Python (kernels/). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cpu.h"

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

static PyMethodDef methods[] = {
    {"cpu", native_cpu, METH_NOARGS, "cpu() -> names of usable instruction sets"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
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
