"""Where trained tasks lie: in a folder, in the run that made it, or in runs of several seeds."""

from __future__ import annotations

from pathlib import Path

from elmore._messages import shown
from elmore.errors import FormatError

__all__ = ["FACTS", "find_task", "is_task", "trainings_of"]

# The file by which the folder of a trained task is known.
FACTS = "task.json"


def is_task(path: Path) -> bool:
    """Tell whether a folder holds a trained task."""
    return (path / FACTS).is_file()


def find_task(path: str | Path) -> Path | None:
    """Find the trained task in a folder or run; None if there is none.

    Raises:
        FormatError: it holds a training for each of several seeds.
    """
    path = Path(path)
    trainings = trainings_of(path)
    if trainings != [path]:
        raise FormatError(
            f"'{shown(path, 100)}' holds several trainings; name one, such as "
            f"{shown(trainings[0], 120)}"
        )
    return next((place for place in (path, path / "checkpoint") if is_task(place)), None)


def trainings_of(path: str | Path) -> list[Path]:
    """Give the trainings of a folder that holds one for each of several seeds, or itself."""
    path = Path(path)
    if is_task(path) or is_task(path / "checkpoint"):
        return [path]
    places = (place.parent for place in path.glob("seed-*/checkpoint") if is_task(place))
    return sorted(places, key=lambda place: (len(place.name), place.name)) or [path]
