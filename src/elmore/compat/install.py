"""`import elmore.compat.install` lets code that imports an old ELMo library run unedited.

Put this line before the first import of `allennlp`, `bilm`, `simple_elmo` or `elmoformanylangs`.
Scripts that you cannot edit run with `python -m elmore.compat run SCRIPT`.
"""

from __future__ import annotations

from elmore.compat.old_paths import install

install()
