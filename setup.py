"""Builds the native core: plain C++ behind a C ABI, once per instruction set; the fitting one is loaded at run time.

The core is loaded by ctypes and knows nothing of Python: one wheel per platform serves every version.

Every build is optional: without a compiler the install succeeds, the torch twins do the work, and
`isthmus doctor` says so.
"""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = sorted(str(path) for path in Path("src/isthmus/kernels/csrc").glob("*.cpp"))
HEADERS = sorted(str(path) for path in Path("src/isthmus/kernels/csrc").glob("*.h"))
# No float flag that changes a result; without traps and errno, conditional loops can use vectors.
FLAGS = ["-O3", "-g0", "-std=c++17", "-fno-trapping-math", "-fno-math-errno", "-fvisibility=hidden", "-fopenmp"]
# Named as torch.backends.cpu.get_cpu_capability() names them, so that the loader can ask for its own.
LEVELS = {"default": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    LEVELS |= {"avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4"]}


class BuildCore(build_ext):
    """Compiles without OpenMP where the compiler has none (one thread is better than no core)."""

    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        except Exception:
            ext.extra_compile_args.remove("-fopenmp")
            ext.extra_link_args.remove("-fopenmp")
            super().build_extension(ext)

    def get_ext_filename(self, fullname):
        """Name the library without a version of Python: ``_core_avx2.so``."""
        return str(Path(*fullname.split("."))) + (".pyd" if sys.platform == "win32" else ".so")

    def get_export_symbols(self, ext):
        """Ask for no ``PyInit`` function; what the core exports is said in its source."""
        return ext.export_symbols


class PlatformWheel(bdist_wheel):
    """Tags the wheel for every Python 3 on this platform."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildCore, "bdist_wheel": PlatformWheel},
    ext_modules=[
        Extension(
            f"isthmus.kernels._core_{level}",
            SOURCES,
            depends=HEADERS,
            extra_compile_args=FLAGS + flags,
            extra_link_args=["-fopenmp"],
            language="c++",
            optional=True,
        )
        for level, flags in LEVELS.items()
    ],
)
