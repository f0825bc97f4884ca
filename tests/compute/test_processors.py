"""The C sources for other processors and compilers: ARM in an emulator, Windows, standard C."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from compute.driver import FLAGS, NATIVE, Report, build, host_compiler, run, tool

pytestmark = pytest.mark.integration
KERNELS = {
    *(
        f"{what} {kind}"
        for what in ("product", "recurrence")
        for kind in ("float32", "float16", "int8", "int8, fine")
    ),
    "gates forward",
    "gates backward",
    "characters",
    "rank",
}
# As in setup.py, so that compilers vectorize as they do there.
OPTIMIZED = ("-O3", "-fno-trapping-math", "-fno-math-errno")
STANDARD = ("-DELMORE_PLAIN_C", "-pedantic-errors", "-Wvla")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What the driver says on this machine."""
    return run(build(tmp_path_factory.mktemp("here"), host_compiler(), *OPTIMIZED))


@pytest.fixture(scope="module")
def arm_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = tool("aarch64-linux-gnu-gcc")
    return build(tmp_path_factory.mktemp("arm"), compiler, *OPTIMIZED, "-static")


def test_every_kernel_of_this_machine_is_compared(here: Report) -> None:
    assert all(set(kernels) == KERNELS for kernels in here.largest.values())


@pytest.mark.parametrize(
    ("processor", "sets"), [("cortex-a53", {"neon"}), ("cortex-a76", {"neon", "neon_dot"})]
)
def test_arm_equals_plain_c(
    arm_program: Path, here: Report, processor: str, sets: set[str]
) -> None:
    """The driver itself holds the differences to its bounds; int8 and characters are exact."""
    found = run(tool("qemu-aarch64"), "-cpu", processor, arm_program)
    assert set(found.largest) == sets
    for kernels in found.largest.values():
        assert set(kernels) == KERNELS
        assert kernels["product int8"] == kernels["product int8, fine"] == 0
        assert kernels["characters"] == 0
    assert found.checksum == here.checksum, "plain C gives other bits on ARM"


def test_standard_c_is_enough(tmp_path: Path, here: Report) -> None:
    """What MSVC sees: no extension of GCC, and the same bits as plain C beside vector kernels."""
    found = run(build(tmp_path, host_compiler(), "-O2", *STANDARD))
    assert found == Report({}, here.checksum)


def test_the_sources_compile_for_windows(tmp_path: Path) -> None:
    assert build(tmp_path, tool("x86_64-w64-mingw32-gcc"), "-O2").exists()


@pytest.mark.parametrize("flags", [(), ("-DELMORE_PLAIN_C",)])
@pytest.mark.parametrize("compiler", ["cc", "aarch64-linux-gnu-gcc"])
def test_the_module_compiles(compiler: str, flags: tuple[str, ...]) -> None:
    """With this machine's Python headers, which suit every 64-bit Unix."""
    path = host_compiler() if compiler == "cc" else tool(compiler)
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        pytest.skip("the headers of Python are not installed")
    command = [path, *FLAGS, *flags, "-fsyntax-only", "-isystem", str(headers)]
    command += ["-DPy_LIMITED_API=0x030B0000", str(NATIVE / "module.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
