"""The import ladder of docs/architecture.md: lower floors never import higher ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import elmore

ROOT = Path(elmore.__file__).parent
FLOORS = {
    0: ("errors", "config", "limits", "report", "options", "_version", "base"),
    1: ("compute",),
    2: ("text",),
    3: ("nn",),
    4: ("formats", "published"),
    5: ("embedding",),
    6: ("language_model",),
    7: ("elmo",),
    8: ("bulk", "senses", "corpus"),
    9: ("training",),
    10: ("tasks",),
    11: ("analysis",),
    12: ("cli", "serve", "compat", "integrations", "__main__"),
    13: ("elmore",),  # the package itself, whose names are found when they are asked for
}
FLOOR = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
# Rooms that meet in config.py alone, and rooms that nothing else may import.
STRANGERS = {("nn", "formats"), ("nn", "published"), ("formats", "nn"), ("published", "nn")}
DOORS = ("cli", "serve", "compat", "integrations")
# But for the verb that opens one of them.
OPENERS = {("elmore.cli.serve", "serve")}
# What stands behind the HTTP door: the facade and its neighbours, nothing that computes below.
BEHIND_SERVE = ("serve", "elmo", "embedding", "language_model", "senses", "tasks", *FLOORS[0])
# What learns, or runs on a GPU, needs torch. Everything else must work where it is not installed:
# these rooms and these modules are the only ones that may import it, directly or through others.
TORCH_ROOMS = ("nn", "tasks")
TORCH_MODULES = {
    f"elmore.{name}"
    for name in (
        "analysis.studies "
        "compat.allennlp.bilm_modules "
        "compat.allennlp.elmo_modules compat.bilm.model "
        "training.distributed training.optimizers "
        "training.bilm.fine_tune training.bilm.objective training.bilm.plan "
        "training.bilm.pretrain training.bilm.trainer"
    ).split()
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "elmore"


def statements(tree: ast.AST, *, inside: bool) -> Iterator[ast.stmt]:
    """Statements that run, not those for type checkers; `inside`: of functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside:
            continue
        if isinstance(node, ast.stmt):
            yield node
        yield from statements(node, inside=inside)


def imports(path: Path, *, inside: bool = True) -> set[str]:
    """Full names of the modules that a file imports."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8")), inside=inside):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in FILES else str(node.module))
    return found


def test_no_import_goes_up() -> None:
    wrong = []
    for module, path in FILES.items():
        if module == "elmore":
            continue
        for other in imports(path):
            if other.split(".")[0] != "elmore":
                continue
            here, there = room(module), room(other)
            if FLOOR[there] > FLOOR[here] or (here, there) in STRANGERS:
                wrong.append(f"{module} imports {other}")
            door = there != here and there in DOORS and here != "__main__"
            if door and (module, there) not in OPENERS:
                wrong.append(f"{module} imports {other}, a door")
    assert not wrong


def test_containers_know_no_model_format() -> None:
    files = {m: path for m, path in FILES.items() if m.startswith("elmore.formats.containers.")}
    assert len(files) > 4
    for module, path in files.items():
        for other in imports(path):
            outside = other.startswith(("elmore.formats.", "elmore.published"))
            assert other in files or not outside, f"{module} imports {other}"


def test_the_service_stands_on_the_facade() -> None:
    rooms = {
        (module, room(other))
        for module, path in FILES.items()
        if room(module) == "serve"
        for other in imports(path)
        if other.split(".")[0] == "elmore"
    }
    assert len(rooms) > 10
    assert [pair for pair in rooms if pair[1] not in BEHIND_SERVE] == []


def cycles(graph: dict[str, set[str]]) -> list[str]:
    done: set[str] = set()
    found: list[str] = []

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            found.append(" -> ".join((*trail[trail.index(name) :], name)))
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
    return found


def test_no_cycles() -> None:
    """Between modules at their top; between packages also inside functions."""
    graph = {
        module: {other for other in imports(path, inside=False) if other in FILES}
        for module, path in FILES.items()
    }
    assert not cycles(graph)
    packages: dict[str, set[str]] = {}
    for module, path in FILES.items():
        # `elmore` is the package itself: its names come from every other one.
        others = {room(other) for other in imports(path) if other.split(".")[0] == "elmore"}
        packages.setdefault(room(module), set()).update(others - {room(module), "elmore"})
    del packages["elmore"]
    assert not cycles(packages)


def without_torch() -> list[str]:
    """Modules that must work where torch is not installed."""
    assert set(FILES) >= TORCH_MODULES, "a module in the list is gone"
    return [m for m in FILES if room(m) not in TORCH_ROOMS and m not in TORCH_MODULES]


def test_the_lowest_floor_and_jobs_need_the_standard_library_alone() -> None:
    for module, path in FILES.items():
        if room(module) in (*FLOORS[0], "jobs"):
            names = {name.split(".")[0] for name in imports(path, inside=False)}
            assert not names & {"torch", "numpy", "h5py", "safetensors", "tqdm"}, path
