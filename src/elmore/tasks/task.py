"""The table of all tasks."""

from __future__ import annotations

from elmore.report import Report, Row, Value

__all__ = ["TASKS", "Report", "Row", "Value"]

# Name to module, class and what it does; a class of a line is a `Task`.
TASKS: dict[str, tuple[str, str, str]] = {
    "tag": (
        "elmore.tasks.own.tag",
        "Tagger",
        "your own tags or spans (CoNLL, CSV, JSONL)",
    ),
    "classify": (
        "elmore.tasks.own.classify",
        "Classifier",
        "your own classes (CSV, JSONL)",
    ),
    "ner": ("elmore.tasks.paper.ner", "Ner", "names and what they are names of (CoNLL columns)"),
    "sentiment": (
        "elmore.tasks.paper.sentiment",
        "Sentiment",
        "five-way sentiment (SST trees)",
    ),
    "nli": ("elmore.tasks.paper.nli", "Nli", "does one sentence follow from another (SNLI)"),
    "srl": ("elmore.tasks.paper.srl", "Srl", "who did what to whom (CoNLL-2012 PropBank columns)"),
    "qa": ("elmore.tasks.paper.qa", "Qa", "the answer to a question in a paragraph (SQuAD)"),
    "coref": (
        "elmore.tasks.paper.coref",
        "Coref",
        "which words corefer (CoNLL-2012 clusters)",
    ),
}
