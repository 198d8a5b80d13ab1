/* The module around compiled kernels: what they call of numba's runtime, and what calls them.

   A kernel's own code comes from numba as an object file. This file is compiled with it, once for each kind of CPU,
   and includes the list `kernels.h` that the builder writes: KERNEL(name, wrapper, environment, arguments).

   numba compiles a kernel for the types that a call has. Here the types are settled, and a call with others is
   refused: `arguments` has a letter for each argument (see `check`). The layouts of `array_struct` and `mem_info`
   are numba's (numba/core/runtime/_nrt_python.c and nrt.cpp, BSD), which the compiled code reads. */

#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>

/* ---- numba's runtime ---- */

typedef struct {
    void *meminfo;
    PyObject *parent;
    npy_intp nitems, itemsize;
    void *data;
    npy_intp shape_and_strides[];
} array_struct;

typedef struct mem_info {
    size_t references;
    void (*destructor)(void *data, size_t size, void *info);
    void *destructor_info;
    void *data;
    size_t size;
    void *allocator;
} mem_info;

/* The caller's tuple of arguments keeps the array alive for the call: no count of references is needed. */
int NRT_adapt_ndarray_from_python(PyObject *object, array_struct *into)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int dimensions = PyArray_NDIM(array);
    into->meminfo = NULL;
    into->parent = object;
    into->nitems = PyArray_SIZE(array);
    into->itemsize = PyArray_ITEMSIZE(array);
    into->data = PyArray_DATA(array);
    for (int i = 0; i < dimensions; i++) {
        into->shape_and_strides[i] = PyArray_DIM(array, i);
        into->shape_and_strides[dimensions + i] = PyArray_STRIDE(array, i);
    }
    return 0;
}

void *NRT_MemInfo_alloc_aligned(size_t size, unsigned align)
{
    size_t step = align > 16 ? align : 16;
    char *begin = malloc(sizeof(mem_info) + size + step);
    if (!begin)
        return NULL;
    mem_info *info = (mem_info *)begin;
    size_t data = ((size_t)(begin + sizeof(mem_info)) + step - 1) / step * step;
    *info = (mem_info){.references = 1, .data = (void *)data, .size = size};
    return info;
}

void NRT_Free(void *memory) { free(memory); }

void NRT_MemInfo_call_dtor(mem_info *info) { free(info); }

PyObject *numba_py_type(PyObject *object) { return (PyObject *)Py_TYPE(object); }

/* Kernels raise nothing of their own: what comes here is numba's, such as memory that is not to be had. */
PyObject *numba_unpickle(const char *data, int length, const char *digest)
{
    PyObject *pickle = PyImport_ImportModule("pickle");
    if (!pickle)
        return NULL;
    PyObject *made = PyObject_CallMethod(pickle, "loads", "y#", data, (Py_ssize_t)length);
    Py_DECREF(pickle);
    return made;
}

int numba_do_raise(PyObject *packed)
{
    PyObject *kind = NULL, *values = NULL, *place = NULL;
    if (packed && PyTuple_CheckExact(packed) && PyArg_ParseTuple(packed, "OOO", &kind, &values, &place)
        && PyExceptionClass_Check(kind))
        PyErr_SetObject(kind, values == Py_None ? NULL : values);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "a kernel failed");
    Py_XDECREF(packed);
    return 0;
}

PyObject *numba_runtime_build_excinfo_struct(PyObject *format, PyObject *values)
{
    Py_XDECREF(format);
    Py_XDECREF(values);
    PyErr_SetString(PyExc_SystemError, "a kernel failed");
    return NULL;
}

/* ---- what calls a kernel ---- */

typedef struct {
    PyObject_HEAD
    PyCFunctionWithKeywords wrapper;
    const char *name, *arguments;
} kernel_object;

/* Check a value against the letter at *spec, and step over it:
   i an integer; b a bool; f a float; o anything, which the kernel itself looks at;
   ( ... ) a tuple of so many; a, the letter of a dtype's kind, its bytes, its dimensions: an array, contiguous. */
static int check(PyObject *value, const char **spec)
{
    const char letter = *(*spec)++;
    switch (letter) {
    case 'o':
        return 1;
    case 'i':
        return PyLong_Check(value) || PyIndex_Check(value);
    case 'b':
        return PyBool_Check(value) || PyArray_IsScalar(value, Bool);
    case 'f':
        return PyFloat_Check(value);
    case '(': {
        Py_ssize_t place = 0, count = PyTuple_Check(value) ? PyTuple_GET_SIZE(value) : -1;
        while (**spec != ')') {
            if (place >= count || !check(PyTuple_GET_ITEM(value, place), spec))
                return 0;
            place++;
        }
        (*spec)++;
        return place == count;
    }
    case 'a': {
        const char kind = (*spec)[0], bytes = (*spec)[1] - '0', dimensions = (*spec)[2] - '0';
        *spec += 3;
        if (!PyArray_Check(value))
            return 0;
        PyArrayObject *array = (PyArrayObject *)value;
        return PyArray_NDIM(array) == dimensions && PyArray_ITEMSIZE(array) == bytes
            && PyArray_DESCR(array)->kind == kind && PyArray_ISCARRAY_RO(array);
    }
    }
    return 0;
}

static PyObject *call(kernel_object *self, PyObject *arguments, PyObject *named)
{
    const char *spec = self->arguments;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!*spec || !check(PyTuple_GET_ITEM(arguments, i), &spec))
            return PyErr_Format(
                PyExc_TypeError, "kernel %s: argument %zd is %R, it was built for %s", self->name, i,
                Py_TYPE(PyTuple_GET_ITEM(arguments, i)), self->arguments);
    }
    if (*spec || named)
        return PyErr_Format(
            PyExc_TypeError, "kernel %s: called with %zd arguments, it was built for %s", self->name, count,
            self->arguments);
    return self->wrapper((PyObject *)self, arguments, NULL);
}

static PyObject *representation(kernel_object *self)
{
    return PyUnicode_FromFormat("<kernel %s(%s)>", self->name, self->arguments);
}

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tierdex.fileparts.kernels.Kernel",
    .tp_basicsize = sizeof(kernel_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = (ternaryfunc)call,
    .tp_repr = (reprfunc)representation,
};

/* ---- the module ---- */

#define KERNEL(name, wrapper, environment, arguments)                \
    extern PyObject *wrapper(PyObject *, PyObject *, PyObject *);    \
    extern PyObject *environment;
#include "kernels.h"
#undef KERNEL

static int add(PyObject *found, const char *name, PyCFunctionWithKeywords wrapper, const char *arguments)
{
    kernel_object *made = PyObject_New(kernel_object, &kernel_type);
    if (!made)
        return -1;
    made->wrapper = wrapper;
    made->name = name;
    made->arguments = arguments;
    int failed = PyDict_SetItemString(found, name, (PyObject *)made);
    Py_DECREF(made);
    return failed;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kernels", .m_size = -1};

PyMODINIT_FUNC PyInit_kernels(void)
{
    import_array();
    if (PyType_Ready(&kernel_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    PyObject *found = module ? PyDict_New() : NULL;
    if (!found || PyModule_AddObject(module, "kernels", found) < 0)
        return NULL;
    /* A wrapper refuses to run without an environment, and reads nothing of it: the builder makes sure. */
#define KERNEL(name, wrapper, environment, arguments)                       \
    environment = Py_None;                                                  \
    if (add(found, name, (PyCFunctionWithKeywords)wrapper, arguments) < 0)  \
        return NULL;
#include "kernels.h"
#undef KERNEL
    return module;
}
