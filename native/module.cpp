// The extension module backend_sdk._native: checks what Python hands over, then calls the C++ code without the GIL.
// Does not: use torch's headers or ABI. Memory arrives by the buffer protocol, so one wheel serves every torch.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "philox.h"

namespace py = pybind11;

namespace {

std::string type_name(const py::handle& value) { return Py_TYPE(value.ptr())->tp_name; }

// An unsigned integer of at most `maximum` from anything with __index__. pybind11's own conversion would answer
// -1 or 2**64 with a list of overloads instead of the limits.
std::uint64_t unsigned_argument(const py::handle& value, const std::string& name, std::uint64_t maximum) {
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
    if (!index) {
        PyErr_Clear();
        throw py::type_error(name + " must be an integer, got " + type_name(value));
    }
    const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
    const bool overflowed = PyErr_Occurred() != nullptr;
    PyErr_Clear();
    if (overflowed || number > maximum) {
        throw py::value_error(name + " must be from 0 to " + std::to_string(maximum) + ", got " +
                              std::string(py::str(index)));
    }
    return number;
}

template <std::size_t N>
std::array<std::uint32_t, N> words_argument(const py::handle& value, const std::string& name) {
    if (!PySequence_Check(value.ptr())) {
        throw py::type_error(name + " must be a sequence of " + std::to_string(N) + " integers, got " +
                             type_name(value));
    }
    const auto sequence = py::reinterpret_borrow<py::sequence>(value);
    if (sequence.size() != N) {
        throw py::value_error(name + " must have " + std::to_string(N) + " words, got " +
                              std::to_string(sequence.size()));
    }
    std::array<std::uint32_t, N> words{};
    for (std::size_t i = 0; i < N; ++i) {
        const py::object item = sequence[i];
        words[i] = static_cast<std::uint32_t>(
            unsigned_argument(item, name + "[" + std::to_string(i) + "]", UINT32_MAX));
    }
    return words;
}

// Native byte order only: "@" and "=" say so, no prefix means it, "<", ">" and "!" are what numpy writes for a
// foreign order.
bool is_32_bit_integer(const py::buffer_info& info) {
    const std::size_t prefix = !info.format.empty() && (info.format[0] == '@' || info.format[0] == '=') ? 1 : 0;
    const std::string code = info.format.substr(prefix);
    return info.itemsize == 4 && (code == "I" || code == "i" || code == "L" || code == "l");
}

void fill(const py::object& out, const py::object& seed, const py::object& stream) {
    if (!PyObject_CheckBuffer(out.ptr())) {
        throw py::type_error("philox_fill: out must be a numpy array (or another object with the buffer protocol), got " +
                             type_name(out));
    }
    // Holding the buffer also forbids Python to resize the array while the GIL is released.
    const py::buffer_info info = py::reinterpret_borrow<py::buffer>(out).request();
    if (!is_32_bit_integer(info)) {
        throw py::type_error("philox_fill: out must hold uint32 or int32 in native byte order, got buffer format '" +
                             info.format + "' of " + std::to_string(info.itemsize) + " bytes");
    }
    if (info.ndim != 1) {
        throw py::value_error("philox_fill: out must have 1 dimension, got " + std::to_string(info.ndim));
    }
    if (info.size > 1 && info.strides[0] != info.itemsize) {
        throw py::value_error("philox_fill: out must be C-contiguous, got a stride of " +
                              std::to_string(info.strides[0]) + " bytes between elements of " +
                              std::to_string(info.itemsize));
    }
    if (info.readonly) {
        throw py::value_error("philox_fill: out must be writable, got a read-only buffer");
    }
    const std::uint64_t seed_bits = unsigned_argument(seed, "philox_fill: seed", UINT64_MAX);
    const std::uint64_t stream_bits = unsigned_argument(stream, "philox_fill: stream", UINT64_MAX);
    auto* words = static_cast<std::uint32_t*>(info.ptr);
    const auto size = static_cast<std::size_t>(info.size);
    py::gil_scoped_release without_gil;
    backend_sdk::philox_fill(words, size, seed_bits, stream_bits);
}

py::tuple one_block(const py::object& counter, const py::object& key) {
    const auto words = backend_sdk::philox4x32_10(words_argument<4>(counter, "philox4x32_10: counter"),
                                                  words_argument<2>(key, "philox4x32_10: key"));
    return py::make_tuple(words[0], words[1], words[2], words[3]);
}

}  // namespace

PYBIND11_MODULE(_native, module, py::mod_gil_not_used()) {
    module.doc() = "Compiled parts of backend_sdk: the Philox4x32-10 random bits that the contract prescribes.";
    module.def("philox_fill", &fill, py::arg("out"), py::arg("seed"), py::arg("stream"),
               "Fill a 1-D contiguous uint32 or int32 array with Philox4x32-10 words.\n\n"
               "out[i] is word i % 4 of the block with counter (i // 4, stream), each 64 bits, low word first, and\n"
               "key seed (64 bits, low word first). Element i depends on (i, seed, stream) only, not on the size.\n"
               "Releases the GIL while it fills.\n\n"
               "Raises TypeError for a wrong dtype or no buffer, ValueError for a wrong rank, a stride, a read-only\n"
               "array, or a seed or stream outside 0..2**64-1.");
    module.def("philox4x32_10", &one_block, py::arg("counter"), py::arg("key"),
               "One block: the four 32-bit words for a counter of four and a key of two 32-bit words.\n\n"
               "Source: Salmon et al., \"Parallel random numbers: as easy as 1, 2, 3\", SC 2011.");
}
