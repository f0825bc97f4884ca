"""Old libraries' call signatures over elmore's parts: one module for each library."""

from __future__ import annotations

from elmore.compat.old_paths import add_modules

# The package's own name; ours is shorter.
add_modules(
    __name__,
    {"elmoformanylangs": "Embedder", "elmoformanylangs.elmo": "Embedder"},
    {"Embedder": "elmore.compat.manylangs"},
)
