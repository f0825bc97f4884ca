"""The table of all tasks."""

from __future__ import annotations

from elmore.report import Report, Row, Value

__all__ = ["TASKS", "Report", "Row", "Value"]

# Name to module, class and what it does; a class of a line is a `Task`.
TASKS: dict[str, tuple[str, str, str]] = {
    "tag": ("elmore.tasks.tag", "Tagger", "your own tags or spans (CoNLL, CoNLL-U, CSV, JSONL)"),
    "classify": ("elmore.tasks.classify", "Classifier", "your own classes (CSV, JSONL, folders)"),
    "ner": ("elmore.tasks.ner", "Ner", "names and what they are names of (CoNLL columns)"),
    "sentiment": ("elmore.tasks.sentiment", "Sentiment", "fine-grained sentiment (SST trees)"),
    "nli": ("elmore.tasks.nli", "Nli", "does one sentence follow from another (SNLI)"),
    "srl": ("elmore.tasks.srl", "Srl", "who did what to whom (CoNLL-2012 PropBank columns)"),
    "qa": ("elmore.tasks.qa", "Qa", "the answer to a question in a paragraph (SQuAD)"),
    "coref": ("elmore.tasks.coref", "Coref", "which words mean the same (CoNLL-2012 clusters)"),
}
