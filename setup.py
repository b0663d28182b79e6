"""Builds the native core: plain C++ behind a C ABI, once per instruction set; the fitting one is loaded at run time.

Every build is optional: without a compiler the install succeeds, the torch twins do the work, and
`isthmus doctor` says so.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = sorted(str(path) for path in Path("src/isthmus/kernels/csrc").glob("*.cpp"))
HEADERS = sorted(str(path) for path in Path("src/isthmus/kernels/csrc").glob("*.h"))
# No float flag that changes a result; without traps and errno, conditional loops can use vectors.
FLAGS = ["-O3", "-std=c++17", "-fno-trapping-math", "-fno-math-errno", "-fvisibility=hidden", "-fopenmp"]
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


setup(
    cmdclass={"build_ext": BuildCore},
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
