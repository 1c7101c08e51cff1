"""Only what pyproject.toml cannot say in a settled way: the kernel, which is left out where there is no compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "ldp_slicing._kernel",
            ["src/ldp_slicing/_kernel.c"],
            depends=["src/ldp_slicing/_kernel.h", "src/ldp_slicing/_kernel_x86.h"],
            extra_compile_args=["-O3", "-g0"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
